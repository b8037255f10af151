"""What a YAML library reads in files whose lines are `key: value`.

Reads texts, each as "<bytes>\n<text>", and prints for each the keys and values,
as text in hexadecimal, one pair a line, and a line "." behind them; "error"
for what is no YAML. Exits with 77 where there is no YAML library.
"""

import sys

try:
    import yaml
except ImportError:
    sys.exit(77)


def texts(file):
    while head := file.readline():
        yield file.read(int(head))


for text in texts(sys.stdin.buffer):
    try:
        pairs = yaml.load(text, Loader=yaml.BaseLoader) or {}
        for key, value in pairs.items():
            print(key.encode().hex(), value.encode().hex(), sep=":")
    except (yaml.YAMLError, AttributeError):
        print("error")
    print(".")
