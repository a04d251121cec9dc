r"""Shell commands by meaning: a bash grammar's tree, reduced to what the shell would do.

Two commands are the same when their normal forms are equal:

    ls  -la; pwd           = ls -l -a \n pwd         spaces, separators, order of independent flags
    cat "a b" >f           = >f cat a\ b             quoting, place of a redirection
    cat ./src//models.py   = cat src/models.py       path spelling, where operands are files
    echo "a  b"           != echo "a b"

Quoting matters where it changes meaning: `"*"` is not `*`, and `"$x"` is not `$x`. What the
grammar cannot read is compared as text. The grammar is tree-sitter-bash (MIT).
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from pivotune.verify.strings import normalise_path

Form = tuple[Any, ...]

MAX_LENGTH = 100_000

_PARSER = Parser(Language(tree_sitter_bash.language()))
_SEPARATORS = frozenset({";", "\n", "\r", "\r\n"})
_WORDS = frozenset(
    {
        "word",
        "number",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "concatenation",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
        "brace_expression",
    }
)
_GLOB = re.compile(r"(?<!\\)[*?\[{]|^~")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_QUOTED = re.compile(r'\\([$`"\\])')
_PLAIN_EXPANSION = re.compile(r"\$\{(\w+)\}")
_PATH_LIKE = re.compile(r"(\.{1,2}/+|/+)?[\w.@+ -]+(/+[\w.@+ -]+)*/*")

# Commands whose operands are files, so that the spelling of a path does not matter.
_FILE_COMMAND_NAMES = (
    "cat cd chmod chown cmp cp diff du file head less ln ls mkdir more mv nano node open pytest "
    "python python3 rm rmdir sh bash sort source . stat tail tee touch tree uniq vi vim wc"
)
_FILE_COMMANDS = frozenset(_FILE_COMMAND_NAMES.split())

# Flags without a value, by command. Those in the second set override one another: of them the
# order counts.
_FLAGS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    name: (frozenset(free), frozenset(ordered))
    for name, (free, ordered) in {
        "cat": ("AbeEnstTuv", ""),
        "chmod": ("R", "cfv"),
        "cp": ("adlprRsuvx", "finPLH"),
        "df": ("aiklT", "hH"),
        "du": ("abcDlLPx", "hkmsS"),
        "grep": ("abchHilLnoqrRsvwxz", "EFGP"),
        "ls": ("aAbBdFgGhHiIklLnNopqQrRsuXZ", "CtSUcfmvx1"),
        "mkdir": ("pv", ""),
        "mv": ("uv", "fin"),
        "ps": ("aAefjly", ""),
        "rm": ("drRv", "fiI"),
        "rmdir": ("pv", ""),
        "sort": ("bdfmruVz", "ghinM"),
        "touch": ("acm", ""),
        "uname": ("aimnoprsv", ""),
        "uniq": ("cdiuz", ""),
        "wc": ("clLmw", ""),
    }.items()
}


def same_command(expected: str, actual: str) -> bool:
    """Whether a shell would do the same; text that does not parse is compared as it is."""
    first, second = _unix(expected), _unix(actual)
    if first == second:
        return True
    form, other = normal_form(first), normal_form(second)
    return form is not None and form == other


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").strip(" \t\r\n")


@lru_cache(maxsize=4096)
def normal_form(command: str) -> Form | None:
    """What two equal commands share; None where the grammar finds an error."""
    source = command.encode(errors="replace")
    if len(source) > MAX_LENGTH:
        return None
    root = _PARSER.parse(source).root_node
    if root.has_error:
        return None
    try:
        return _block(root)
    except RecursionError:
        return None


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _block(node: Node) -> Form:
    """Children in order, without comments and separators."""
    return tuple(
        _form(child)
        for child in node.children
        if child.type != "comment" and not (not child.is_named and child.type in _SEPARATORS)
    )


def _form(node: Node) -> Form:
    kind = node.type
    if kind == "command":
        return _read_command(node).form()
    if kind == "redirected_statement":
        return _redirected(node)
    if kind in _WORDS:
        return _word(node)
    if kind == "variable_assignment":
        return ("assignment", *_block(node))
    if kind == "heredoc_redirect":
        return _heredoc(node)
    if not node.children:
        return ("token", _text(node))
    return (kind, *_block(node))


class _Parts(NamedTuple):
    """A simple command as read; redirections around it still add to it."""

    assignments: list[Form]
    words: list[Form]
    redirects: list[Form]

    def add_redirect(self, node: Node) -> None:
        """The grammar takes words after a redirection's target for targets: they are words."""
        if node.type != "file_redirect":
            self.redirects.append(_form(node))
            return
        targets = node.children_by_field_name("destination")
        operator = "".join(_text(child) for child in node.children if child not in targets)
        first = [_as_path(_form(target)) for target in targets[:1]]
        self.redirects.append(("redirect", operator, *first))
        self.words.extend(_form(target) for target in targets[1:])

    def form(self) -> Form:
        name = _literal(self.words[0]) if self.words else None
        arguments = _arguments(name.rpartition("/")[2] if name else "", self.words)
        return ("command", tuple(self.assignments), arguments, tuple(self.redirects))


def _read_command(node: Node) -> _Parts:
    parts = _Parts([], [], [])
    for child in node.children:
        if child.type == "variable_assignment":
            parts.assignments.append(_form(child))
        elif child.type == "command_name":
            parts.words.append(_form(child.children[0]))
        elif child.type.endswith("_redirect"):
            parts.add_redirect(child)
        elif child.is_named:
            parts.words.append(_form(child))
    return parts


def _redirected(node: Node) -> Form:
    """Redirections join the command that they stand beside, before or after it."""
    body = node.child_by_field_name("body")
    simple = body is None or body.type == "command"
    parts = _read_command(body) if simple and body is not None else _Parts([], [], [])
    for child in node.children:
        if child.type.endswith("_redirect"):
            parts.add_redirect(child)
    if body is None or simple:
        return parts.form()
    return ("redirected", _form(body), parts.form())


def _heredoc(node: Node) -> Form:
    """The document itself, and whether its marker is quoted; the marker's name does not matter."""
    quoted = False
    body = ""
    rest: list[Form] = []
    for child in node.children:
        if child.type == "heredoc_start":
            quoted = any(mark in _text(child) for mark in "'\"\\")
        elif child.type == "heredoc_body":
            body = _text(child)
        elif child.type != "heredoc_end":
            rest.append(_form(child))
    return ("heredoc", quoted, body, *rest)


def _arguments(name: str, words: list[Form]) -> Form:
    free, ordered = _FLAGS.get(name, (frozenset(), frozenset()))
    flags: set[str] = set()
    overriding: list[str] = []
    rest: list[Form] = list(words[:1])
    for position, word in enumerate(words[1:], 1):
        text = _literal(word)
        if text == "--":
            rest.extend(words[position:])
            break
        letters = text[1:] if text and text[0] == "-" and text[1:2] not in ("", "-") else ""
        if letters and set(letters) <= free | ordered:
            flags.update(set(letters) & free)
            overriding.extend(letter for letter in letters if letter in ordered)
        else:
            rest.append(_as_path(word) if name in _FILE_COMMANDS else word)
    return (frozenset(flags), tuple(overriding), tuple(rest))


def _literal(word: Form) -> str | None:
    """The text of a word without expansions and patterns."""
    if word[0] == "word" and len(word) == 2 and word[1][0] == "text":
        text: str = word[1][1]
        return text
    return None


def _as_path(word: Form) -> Form:
    text = _literal(word)
    if text is None or "/" not in text or not _PATH_LIKE.fullmatch(text):
        return word
    path = normalise_path(text)
    return word if path.startswith("-") else ("word", ("text", path))


def _word(node: Node) -> Form:
    """`("word", piece, …)`; neighbouring pieces of plain text are joined."""
    pieces: list[tuple[Any, ...]] = []
    for piece in _pieces(node):
        if pieces and pieces[-1][0] == piece[0] == "text":
            pieces[-1] = ("text", pieces[-1][1] + piece[1])
        else:
            pieces.append(piece)
    return ("word", *pieces)


def _pieces(node: Node) -> list[tuple[Any, ...]]:
    kind = node.type
    if kind == "concatenation":
        return [piece for child in node.children for piece in _pieces(child)]
    if kind == "raw_string":
        return [("text", _text(node)[1:-1])]
    if kind == "string":
        return _quoted_pieces(node)
    if kind in ("word", "number"):
        text = _text(node).replace("\\\n", "")
        if _GLOB.search(text):
            return [("pattern", text)]
        return [("text", _ESCAPED.sub(r"\1", text))]
    return [_expansion(node, quoted=False)]


def _quoted_pieces(node: Node) -> list[tuple[Any, ...]]:
    """Inside double quotes: what is no expansion is text, spaces included."""
    source = node.text or b""
    pieces: list[tuple[Any, ...]] = []
    position = 1
    for child in node.named_children:
        if child.type == "string_content":
            continue
        start = child.start_byte - node.start_byte
        pieces.append(("text", _unquote(source[position:start])))
        pieces.append(_expansion(child, quoted=True))
        position = start + len(child.text or b"")
    pieces.append(("text", _unquote(source[position:-1])))
    return [piece for piece in pieces if piece != ("text", "")] or [("text", "")]


def _unquote(source: bytes) -> str:
    return _ESCAPED_QUOTED.sub(r"\1", source.decode(errors="replace").replace("\\\n", ""))


def _expansion(node: Node, *, quoted: bool) -> tuple[Any, ...]:
    if node.type == "command_substitution":
        inner = (child for child in node.children if child.is_named and child.type != "comment")
        return ("output", quoted, *map(_form, inner))
    text = _text(node)
    plain = _PLAIN_EXPANSION.fullmatch(text)
    return ("expansion", quoted, f"${plain[1]}" if plain else text)
