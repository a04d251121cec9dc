"""Is this action acceptable at this state? One file a family; invalid is never zero."""

from pivotune.verify.actions import as_completion
from pivotune.verify.build import COMPOSITIONS, VERIFIERS, build_verifier
from pivotune.verify.command import CommandConfig, CommandVerifier
from pivotune.verify.compare import FieldRule
from pivotune.verify.compose import AllOf, AnyOf, FirstOf, Weighted, safely, verify_all
from pivotune.verify.effect import EffectConfig, EffectVerifier
from pivotune.verify.judge import JudgeConfig, JudgeVerifier
from pivotune.verify.outcome import OutcomeConfig, OutcomeVerifier, Rollout, play_oracle
from pivotune.verify.process_reward import ProcessRewardConfig, ProcessRewardVerifier
from pivotune.verify.schema import SchemaConfig, SchemaVerifier
from pivotune.verify.selftest import KindReport, Mistake, SelftestReport, selftest
from pivotune.verify.strict import StrictVerifier
from pivotune.verify.text import TextConfig, TextVerifier, text_similarity
from pivotune.verify.tool_call import ToolCallConfig, ToolCallVerifier
from pivotune.verify.tool_name import ToolNameVerifier

__all__ = [
    "COMPOSITIONS",
    "VERIFIERS",
    "AllOf",
    "AnyOf",
    "CommandConfig",
    "CommandVerifier",
    "EffectConfig",
    "EffectVerifier",
    "FieldRule",
    "FirstOf",
    "JudgeConfig",
    "JudgeVerifier",
    "KindReport",
    "Mistake",
    "OutcomeConfig",
    "OutcomeVerifier",
    "ProcessRewardConfig",
    "ProcessRewardVerifier",
    "Rollout",
    "SchemaConfig",
    "SchemaVerifier",
    "SelftestReport",
    "StrictVerifier",
    "TextConfig",
    "TextVerifier",
    "ToolCallConfig",
    "ToolCallVerifier",
    "ToolNameVerifier",
    "Weighted",
    "as_completion",
    "build_verifier",
    "play_oracle",
    "safely",
    "selftest",
    "text_similarity",
    "verify_all",
]
