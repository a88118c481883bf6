"""Samples as tokens: samples.py FILE TOKENIZER MOST prints how long they are as one JSON object; kits train on them.

Rows of .jsonl, .json and .parquet are what trainers read: text; messages or conversations; prompt, instruction, input
with completion, response or output; prompt with chosen and rejected, of which the longer one counts. Of a file with
more than MOST rows, or more than MOST_CHARACTERS, so many are counted, evenly spread. Nothing is downloaded and no code
of the tokenizer's folder is run.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
BEFORE = ("instruction", "prompt", "query", "question", "input", "history")
BEHIND = ("completion", "response", "output", "answer")
MOST_CHARACTERS = 4_000_000  # half a second of two cores
AT_ONCE = 1024  # texts that are encoded together


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def template_of(folder):
    """The folder's chat template, compiled as transformers compiles it (utils/chat_template_utils.py of 5.17); None
    without one. Its sandbox, without the import of transformers and torch, which takes longer than the counting."""
    said = read_json(folder / "tokenizer_config.json")
    text = said.get("chat_template")
    if isinstance(text, list):
        named = {one["name"]: one["template"] for one in text}
        text = named.get("default", text[0]["template"])
    if (folder / "chat_template.jinja").is_file():
        text = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if not text:
        return None
    from jinja2 import exceptions, nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message):
        raise exceptions.TemplateError(message)

    def as_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    rules = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                          extensions=[Generation, "jinja2.ext.loopcontrols"])
    rules.filters["tojson"] = as_json
    rules.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
    special = {name: token.get("content") if isinstance(token, dict) else token
               for name, token in said.items() if name.endswith("_token") and isinstance(token, (str, dict))}
    compiled = rules.from_string(text)
    return lambda turns, opens=False: compiled.render(messages=turns, tools=None, documents=None,
                                                      add_generation_prompt=opens, **special)


class Encoder:
    """Texts as tokens, and conversations as texts by the tokenizer's template."""

    def __init__(self, folder):
        folder = Path(folder)
        self.template = template_of(folder)
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
            self.encode = lambda texts, special: [one.ids for one in encode(texts, add_special_tokens=special)]
            return
        from transformers import AutoTokenizer

        slow = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.encode = lambda texts, special: slow(texts, add_special_tokens=special, verbose=False)["input_ids"]

    def text(self, text):
        return text, True

    def conversation(self, turns, opens=False):
        """opens: an answer is to follow."""
        turns = [{"role": turn.get("role") or ROLES.get(turn.get("from"), turn.get("from") or "user"),
                  "content": words(turn.get("content", turn.get("value", "")))} for turn in turns]
        if self.template:
            try:
                return self.template(turns, opens), False
            except Exception:  # a template that refuses these roles
                pass
        return self.text("\n".join(turn["content"] for turn in turns))

    def tokens(self, texts):
        """Of (text, whether the tokenizer adds its own tokens)."""
        found = [[] for _ in texts]
        for special in (True, False):
            here = [i for i, one in enumerate(texts) if one[1] == special]
            for first in range(0, len(here), AT_ONCE):
                some = here[first : first + AT_ONCE]
                for i, ids in zip(some, self.encode([texts[i][0] for i in some], special)):
                    found[i] = ids
        return found


def words(value):
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # parts of a message, of which the text counts
        return "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in value)
    return "" if value is None else str(value)


def texts_of(row, encoder):
    """What a row is as text; of several the longest counts."""
    if isinstance(row, str):
        return [encoder.text(row)]
    for name in ("messages", "conversations", "conversation"):
        if isinstance(row.get(name), list):
            return [encoder.conversation(row[name])]
    if "chosen" in row and "rejected" in row:
        return [answered(row, row[name], encoder) for name in ("chosen", "rejected")]
    if isinstance(row.get("text"), str):
        return [encoder.text(row["text"])]
    behind = next((row[name] for name in BEHIND if row.get(name) is not None), None)
    if behind is None and "prompt" not in row:
        raise KeyError(", ".join(sorted(row)))
    return [answered(row, behind or "", encoder)]


def answered(row, answer, encoder):
    """A row's prompt with an answer; with None the prompt as it stands before one."""
    prompts = [row[name] for name in BEFORE if row.get(name)]
    if isinstance(answer, list) or any(isinstance(prompt, list) for prompt in prompts):
        turns = [turn for prompt in prompts if isinstance(prompt, list) for turn in prompt]
        if answer is not None:
            turns += answer if isinstance(answer, list) else [{"role": "assistant", "content": words(answer)}]
        return encoder.conversation([turn for turn in turns if isinstance(turn, dict)], answer is None)
    if encoder.template:
        turns = [{"role": "user", "content": "\n".join(words(prompt) for prompt in prompts)}]
        return encoder.conversation(turns + ([] if answer is None else [{"role": "assistant", "content": words(answer)}]),
                                    answer is None)
    return encoder.text("\n".join([words(prompt) for prompt in prompts] + [words(answer)]))


def has_prompt(row):
    """Whether its answer alone is learned: as TRL's SFTTrainer has it, of a prompt with a completion and not of messages."""
    return isinstance(row, dict) and any(row.get(name) for name in BEFORE) and not any(
        isinstance(row.get(name), list) for name in ("messages", "conversations", "conversation"))


def samples_of(path, folder):
    """Of each row its tokens, and how many of them are a prompt. Of a preference the chosen answer."""
    encoder = Encoder(folder)
    _, rows = some_rows(path)
    texts = [texts_of(row, encoder)[0] for row in rows]
    before = [answered(row, None, encoder) if has_prompt(row) else ("", False) for row in rows]
    prompts = [one if text[0].startswith(one[0]) else ("", False) for text, one in zip(texts, before)]
    return [(ids, min(len(prompt), len(ids)) if one[0] else 0)
            for ids, prompt, one in zip(encoder.tokens(texts), encoder.tokens(prompts), prompts)]


def spread(rows, most):
    """So many of the rows, evenly."""
    return [rows[i * len(rows) // most] for i in range(most)] if most < len(rows) else rows


def some_rows(path, most=None):
    """How many rows there are, and at most so many of them."""
    if Path(path).suffix == ".parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path).to_pylist()
        return len(rows), spread(rows, len(rows) if most is None else min(len(rows), most))
    text = Path(path).read_text(encoding="utf-8")
    listed = text.lstrip().startswith("[")
    rows = json.loads(text) if listed else [line for line in text.split("\n") if line.strip()]
    count = len(rows)
    if most is not None:
        count = min(count, most, max(1, len(rows) * MOST_CHARACTERS // max(1, len(text))))
    chosen = spread(rows, count)
    return len(rows), chosen if listed else [json.loads(line) for line in chosen]


def lengths_of(rows, encoder):
    texts = [texts_of(row, encoder) for row in rows]
    tokens = iter(encoder.tokens([text for several in texts for text in several]))
    return [max(1, *(len(next(tokens)) for _ in several)) for several in texts]


def main():
    path, folder, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        samples, rows = some_rows(path, most)
        lengths = lengths_of(rows, Encoder(folder))
    except KeyError as error:
        print(json.dumps({"problem": f"a row with the keys {error.args[0]}"}))
        return
    except (OSError, ValueError) as error:
        print(json.dumps({"problem": str(error).splitlines()[0] if str(error) else type(error).__name__}))
        return
    except ImportError as error:
        print(json.dumps({"missing": error.name}))
        return
    print(json.dumps({"samples": samples, "lengths": lengths}))


if __name__ == "__main__":
    main()
