"""Tokens of the samples of a JSONL file: lengths.py FILE TOKENIZER MOST. Prints one JSON object.

Rows are what trainers read: text; messages or conversations; prompt, instruction, input with completion, response or
output; prompt with chosen and rejected, of which the longer one counts. Of a file with more than MOST rows, or more
than MOST_CHARACTERS, so many are counted, evenly spread. Nothing is downloaded and no code of the tokenizer's folder
is run.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
BEFORE = ("instruction", "prompt", "query", "question", "input", "history")
BEHIND = ("completion", "response", "output", "answer")
MOST_CHARACTERS = 16_000_000  # two seconds of two cores
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
    return lambda turns: compiled.render(messages=turns, tools=None, documents=None, add_generation_prompt=False,
                                         **special)


class Counter:
    """Tokens of texts, and conversations as texts by the tokenizer's template."""

    def __init__(self, folder):
        folder = Path(folder)
        self.template = template_of(folder)
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
            self.encode = lambda texts, special: [len(one.ids) for one in encode(texts, add_special_tokens=special)]
            return
        from transformers import AutoTokenizer

        slow = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.encode = lambda texts, special: [
            len(ids) for ids in slow(texts, add_special_tokens=special, verbose=False)["input_ids"]]

    def text(self, text):
        return text, True

    def conversation(self, turns):
        turns = [{"role": turn.get("role") or ROLES.get(turn.get("from"), turn.get("from") or "user"),
                  "content": words(turn.get("content", turn.get("value", "")))} for turn in turns]
        if self.template:
            try:
                return self.template(turns), False
            except Exception:  # a template that refuses these roles
                pass
        return self.text("\n".join(turn["content"] for turn in turns))

    def count(self, texts):
        """Of (text, whether the tokenizer adds its own tokens)."""
        lengths = [0] * len(texts)
        for special in (True, False):
            here = [i for i, one in enumerate(texts) if one[1] == special]
            for first in range(0, len(here), AT_ONCE):
                some = here[first : first + AT_ONCE]
                for i, length in zip(some, self.encode([texts[i][0] for i in some], special)):
                    lengths[i] = length
        return lengths


def words(value):
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # parts of a message, of which the text counts
        return "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in value)
    return "" if value is None else str(value)


def texts_of(row, counter):
    """What a row is as text; of several the longest counts."""
    if isinstance(row, str):
        return [counter.text(row)]
    for name in ("messages", "conversations", "conversation"):
        if isinstance(row.get(name), list):
            return [counter.conversation(row[name])]
    if "chosen" in row and "rejected" in row:
        return [answered(row, row[name], counter) for name in ("chosen", "rejected")]
    if isinstance(row.get("text"), str):
        return [counter.text(row["text"])]
    behind = next((row[name] for name in BEHIND if row.get(name) is not None), None)
    if behind is None and "prompt" not in row:
        raise KeyError(", ".join(sorted(row)))
    return [answered(row, behind or "", counter)]


def answered(row, answer, counter):
    prompts = [row[name] for name in BEFORE if row.get(name)]
    if isinstance(answer, list) or any(isinstance(prompt, list) for prompt in prompts):
        turns = [turn for prompt in prompts if isinstance(prompt, list) for turn in prompt]
        turns += answer if isinstance(answer, list) else [{"role": "assistant", "content": words(answer)}]
        return counter.conversation([turn for turn in turns if isinstance(turn, dict)])
    if counter.template:
        return counter.conversation([{"role": "user", "content": "\n".join(words(prompt) for prompt in prompts)},
                                     {"role": "assistant", "content": words(answer)}])
    return counter.text("\n".join([words(prompt) for prompt in prompts] + [words(answer)]))


def rows_of(path, most):
    """How many rows there are, and at most so many of them, evenly spread."""
    text = Path(path).read_text(encoding="utf-8")
    listed = text.lstrip().startswith("[")
    rows = json.loads(text) if listed else [line for line in text.split("\n") if line.strip()]
    count = min(len(rows), most, max(1, len(rows) * MOST_CHARACTERS // max(1, len(text))))
    chosen = [rows[i * len(rows) // count] for i in range(count)]
    return len(rows), chosen if listed else [json.loads(line) for line in chosen]


def lengths_of(rows, counter):
    texts = [texts_of(row, counter) for row in rows]
    counted = iter(counter.count([text for several in texts for text in several]))
    return [max(1, *(next(counted) for _ in several)) for several in texts]


def main():
    path, folder, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        samples, rows = rows_of(path, most)
        lengths = lengths_of(rows, Counter(folder))
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
