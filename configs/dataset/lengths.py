"""Tokens of the samples of a JSONL file: lengths.py FILE TOKENIZER MOST. Prints one JSON object.

Rows are what trainers read: text; messages or conversations; prompt, instruction, input with completion, response or
output; prompt with chosen and rejected, of which the longer one counts. Of a file with more than MOST rows so many are
counted, evenly spread. Nothing is downloaded and no code of the tokenizer's folder is run.
"""

import json
import sys
from pathlib import Path

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
BEFORE = ("instruction", "prompt", "query", "question", "input", "history")
BEHIND = ("completion", "response", "output", "answer")


class Counter:
    """Tokens of a text, or of a conversation by the tokenizer's template."""

    def __init__(self, folder):
        self.template = False
        try:
            from transformers import AutoTokenizer
        except ImportError:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
            self.text = lambda text: len(tokenizer.encode(text).ids)
            return
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.text = lambda text: len(tokenizer(text, verbose=False)["input_ids"])
        self.template = bool(getattr(tokenizer, "chat_template", None))
        self.tokenizer = tokenizer

    def conversation(self, turns):
        turns = [{"role": turn.get("role") or ROLES.get(turn.get("from"), turn.get("from") or "user"),
                  "content": words(turn.get("content", turn.get("value", "")))} for turn in turns]
        if self.template:
            try:
                return self.text(self.tokenizer.apply_chat_template(turns, tokenize=False))
            except Exception:  # a template that refuses these roles
                pass
        return self.text("\n".join(turn["content"] for turn in turns))


def words(value):
    if isinstance(value, str):
        return value
    if isinstance(value, list):  # parts of a message, of which the text counts
        return "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in value)
    return "" if value is None else str(value)


def tokens_of(row, counter):
    if isinstance(row, str):
        return counter.text(row)
    for name in ("messages", "conversations", "conversation"):
        if isinstance(row.get(name), list):
            return counter.conversation(row[name])
    if "chosen" in row and "rejected" in row:
        return max(answered(row, row[name], counter) for name in ("chosen", "rejected"))
    if isinstance(row.get("text"), str):
        return counter.text(row["text"])
    behind = next((row[name] for name in BEHIND if row.get(name) is not None), None)
    if behind is None and "prompt" not in row:
        raise KeyError(", ".join(sorted(row)))
    return answered(row, behind or "", counter)


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


def rows_of(path):
    text = Path(path).read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def main():
    path, folder, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        rows = rows_of(path)
        counter = Counter(folder)
        count = min(len(rows), most)
        chosen = [rows[i * len(rows) // count] for i in range(count)]
        lengths = [max(1, tokens_of(row, counter)) for row in chosen]
    except KeyError as error:
        print(json.dumps({"problem": f"a row with the keys {error.args[0]}"}))
        return
    except (OSError, ValueError) as error:
        print(json.dumps({"problem": str(error).splitlines()[0] if str(error) else type(error).__name__}))
        return
    except ImportError as error:
        print(json.dumps({"problem": f"{error.name} is not installed in this Python"}))
        return
    print(json.dumps({"samples": len(rows), "lengths": lengths}))


if __name__ == "__main__":
    main()
