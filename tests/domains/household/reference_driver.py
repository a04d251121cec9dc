"""Runs inside the reference interpreter (with `alfworld`): plays games for the tests over pipes.

One JSON object a line in, one out:
    {"load": path}            -> {"text", "admissible", "won"}
    {"step": command}         -> {"text", "admissible", "won"}
    {"plan": 0}               -> {"plan": [...]}: the planner's plan from the current state
    {"cpu": 0}                -> {"cpu": seconds of CPU time used so far}
    {"data": 0}               -> {"domain", "grammar"}: the texts that ship with the package
`--quick` keeps what cannot change the answers from being computed again and again: a command's
words for the same entities, parsed texts and queries, the translation of the same problem, a file
that has been loaded already; and names are not copied for every word that is said. Without it the
engine is as it comes (`plan` needs that).
"""

import copy
import functools
import importlib.resources
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def quicken() -> None:
    """Remember translations of problems and the words of commands; skip the planner's copy."""
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.envs.pddl.textgen import ContextSensitiveGrammar
    from textworld.logic import Rule

    translate = fast_downward.pddl2sas
    last: dict[tuple[str, str], Any] = {}

    def translate_once(
        domain: str, problem: str, verbose: bool = False, optimize: bool = False
    ) -> Any:
        key = (domain, problem)
        if key not in last:
            last.clear()
            last[key] = translate(domain, problem, verbose=verbose, optimize=False)
        return last[key]

    fast_downward.pddl2sas = translate_once
    Rule.parse_conjunctive_query = functools.cache(Rule.parse_conjunctive_query)

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        own = {name: dict(context[name]) for name in ("variables", "mapping")}
        return {**context, **own}  # entities and names are only read

    parse = functools.cache(textgen._parse_and_convert)

    def parse_once(*arguments: Any, **settings: Any) -> list[Any]:
        return [copy.copy(symbol) for symbol in parse(*arguments, **settings)]

    textgen.copy_context = copy_context
    textgen._parse_and_convert = parse_once
    derive = ContextSensitiveGrammar.derive

    def derive_once(self: Any, start: str, context: Any) -> str:
        if start.startswith("#"):
            return str(derive(self, start, context))
        memory = self.__dict__.setdefault("commands", {})
        named = {k.name: v.name for k, v in context["mapping"].items() if k.name != "lstart"}
        key = (start, tuple(named.items()))
        if key not in memory:
            memory[key] = derive(self, start, context)
        return str(memory[key])

    ContextSensitiveGrammar.derive = derive_once


def main() -> None:
    quick = "--quick" in sys.argv
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the planner's own output goes elsewhere
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl import PddlEnv

    if quick:
        quicken()
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    game = AlfredDemangler(PddlEnv(infos), shuffle=False)
    loaded = ""
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "load" in request:
            content = Path(request["load"]).read_text() if quick else ""
            if not quick or content != loaded:
                game.load(request["load"])
                loaded = content
            state = game.reset()
        elif "step" in request:
            state, _, _ = game.step(request["step"])
        if "load" in request or "step" in request:
            commands = state["admissible_commands"]
            answer = {"text": state.feedback, "admissible": commands, "won": state["won"]}
        elif "plan" in request:
            inner = game.unwrapped
            answer = {"plan": inner._pddl_state.replan(inner._entity_infos)}
        elif "cpu" in request:
            answer = {"cpu": time.process_time()}
        elif "data" in request:
            folder = importlib.resources.files("alfworld") / "data"
            answer = {
                "domain": (folder / "alfred.pddl").read_text(),
                "grammar": (folder / "alfred.twl2").read_text(),
            }
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
