"""What to do about what a check has found."""

from collections.abc import Sequence

from tailrace.testing.comparison import Mismatch, Symptom
from tailrace.testing.scenarios import FaultKind

_IN_ORDER = (
    "Apply the changes of a document one after another, in the order of the batch: not with "
    "gather, and not in tasks of your own."
)
_ADVICE = {
    (FaultKind.PLAIN, Symptom.UNDELETED): "Apply deletes: remove the document of a delete event.",
    (FaultKind.PLAIN, Symptom.STALE): _IN_ORDER,
    (FaultKind.PLAIN, Symptom.DISORDER): _IN_ORDER,
    (
        FaultKind.ERROR,
        Symptom.MISSING,
    ): "Raise every error: a call that returns says that all of its events are stored.",
    (
        FaultKind.ERROR,
        Symptom.TWICE,
    ): "Store the data and batch.position in one transaction, and roll "
    "it back on every error: what a failed call had stored is repeated.",
    (
        FaultKind.REPEAT,
        Symptom.TWICE,
    ): "Store batch.position with the data, and return the stored text from begin.",
    (
        FaultKind.KILL,
        Symptom.TWICE,
    ): "Store the data and batch.position in one transaction: a process "
    "can be killed between two of them.",
    (
        FaultKind.KILL,
        Symptom.MISSING,
    ): "Return only when the data is stored, and store batch.position "
    "in the same transaction, never before it.",
    (
        FaultKind.HAND_OVER,
        Symptom.TWICE,
    ): "Compare the stored text with batch.former in the transaction "
    "that writes, and raise Fenced if they differ. The epoch alone does not stop a process that "
    "was paused in mid transaction.",
}
_RESTORED = (
    "Compare the stored text with batch.former in the transaction that writes, and raise Fenced if "
    "they differ: only so is a restored destination noticed. Return the stored text from begin."
)
_BY_KIND = {
    FaultKind.RESTORE: _RESTORED,
    FaultKind.PLAIN: "This happens without any fault.",
    FaultKind.ERROR: _ADVICE[FaultKind.ERROR, Symptom.MISSING],
    FaultKind.REPEAT: "Changes that come again must not go back: compare, or let the last one win.",
    FaultKind.KILL: _ADVICE[FaultKind.KILL, Symptom.MISSING],
    FaultKind.HAND_OVER: _ADVICE[FaultKind.HAND_OVER, Symptom.TWICE],
}


def advice(kind: FaultKind, differences: Sequence[Mismatch]) -> str:
    """One sentence for the first difference for which there is one."""
    found = (_ADVICE.get((kind, each.symptom)) for each in differences)
    return next((each for each in found if each), _BY_KIND[kind])
