import pytest

from pivotune.verify.shell import normal_form, same_command

SAME = [
    ("ls  -la", "ls -la"),
    ("ls -l -a", "ls -al"),
    ("ls -la /tmp", "ls /tmp -al"),
    ("cat ./src//models.py", "cat src/models.py"),
    ("cat /a/./b", "cat /a/b"),
    ("cat 'a b' >f", ">f cat a\\ b"),
    ('cat a-"b"', 'cat "a-b"'),
    ("A=1 x | y", "A=1  x|y"),
    ("a; b", "a\nb\n"),
    ("ls a\r\nls b\r\n", "ls a\nls b"),
    ("echo ${x}", "echo $x"),
    ("x $(ls  -a)", "x `ls -a`"),
    ("cat <<'E'\nhi\nE", "cat <<'F'\nhi\nF"),
    ("ls # all of it", "ls"),
    ("rm -rf build dir", "rm -r -f build dir"),
    ("if a; then b; fi", "if a\nthen b\nfi"),
    ("cat f>o 2>&1", "cat f > o 2>&1"),
    ("ls > f -la", "ls -la >f"),
    ("", "  \n"),
]
DIFFERENT = [
    ('echo "a  b"', 'echo "a b"'),
    ("rm a.txt", "cat a.txt"),
    ("rm -rf build dir", "rm -rf home dir"),
    ("git push origin main", "git push origin main --force"),
    ("cat src/models.py", "cat test/models.py"),
    ("ls *.py", 'ls "*.py"'),
    ("echo $x", 'echo "$x"'),
    ('echo "$x"', "echo '$x'"),
    ('echo "a $x b"', 'echo "a  $x b"'),
    ("cat <<E\nhi\nE", "cat <<E\nho\nE"),
    ("cat <<E\n$x\nE", "cat <<'E'\n$x\nE"),
    ("a && b", "a; b"),
    ("a | b", "a || b"),
    ("a &", "a"),
    ("rm -i -f x", "rm -f -i x"),
    ("x >f", "x >>f"),
    ("x 2>f", "x >f"),
    ("x >f 2>&1", "x 2>&1 >f"),
    ("head -n 5 f", "head -n 6 f"),
    ("sed s/a//g f", "sed s/a/g f"),
    ("echo ./a", "echo a"),
    ("./run", "run"),
    ("cat ~/a", 'cat "~/a"'),
    ("cat a b", "cat b a"),
    ("rm -- -f", "rm -f"),
    ("cat ./-n", "cat -n"),
    ('echo "$(ls)"', "echo $(ls)"),
    ("LS -la", "ls -la"),
    ("A=1 x", "x"),
    ("cat ''", "cat"),
    ("(cd a; b)", "cd a; b"),
    ('ls "', "ls"),
    ("for i in 1 2; do x; done", "for i in 1 3; do x; done"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_same_commands(a: str, b: str) -> None:
    assert same_command(a, b)
    assert same_command(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different_commands(a: str, b: str) -> None:
    assert not same_command(a, b)
    assert not same_command(b, a)


def test_what_does_not_parse_is_compared_as_text() -> None:
    assert normal_form('ls "') is None
    assert same_command('ls "\r\n', 'ls "')
    assert not same_command('ls "', 'ls  "')


def test_nesting_beyond_reason_is_compared_as_text() -> None:
    deep = "$(" * 2000 + "ls" + ")" * 2000
    assert same_command(deep, deep + "\n")
    assert not same_command(deep, deep.replace("ls", "rm"))
