"""Every error that Tailwise raises on purpose.

    TailwiseError
    ├── BadInput (ValueError)            an array, a file or a number is not what it must be
    │   ├── BadProbabilities             rows that are not distributions; the message names them
    │   └── BadFile                      a file that is missing, damaged or of the wrong kind
    │       ├── LedgerFault              a campaign's own ledger: damaged, or on a disk that is full or read-only
    │       │   └── LedgerReplaced       the ledger's file was deleted or replaced while the campaign was open
    │       └── OlderLedger              a campaign that an older Tailwise has written, opened for reading alone
    ├── PoolExhausted (ValueError)       more picks asked for than there are images
    ├── TargetUnreachable (ValueError)   a wish that no batch from this pool can meet
    ├── UnknownName (KeyError)           a name that is not in a registry
    ├── LedgerBusy (RuntimeError)        another program holds the campaign's ledger
    ├── NewerLedger (RuntimeError)       a campaign that a newer Tailwise has written
    ├── OutOfFiles (RuntimeError)        too many files are open: no fault of the file that was asked for
    ├── MissingExtra (ImportError)       an optional dependency is needed and absent
    ├── ClusterLost (RuntimeError)       a cluster that is full, or loses what it holds again and again
    ├── WorkersLost (RuntimeError)       worker processes that are killed, or cannot start, again and again
    └── SolverFailed (RuntimeError)      HiGHS ended in a state that cannot be used, or a bound is wrong

    CalibrationWarning (UserWarning)     not an error: confidence and accuracy on labelled images disagree

Each message says what was asked, what is true and what to do.
"""

from __future__ import annotations


class TailwiseError(Exception):
    """Root of all errors raised by Tailwise."""


class BadInput(TailwiseError, ValueError):
    """An array, a file or a number is not what it must be."""


class BadProbabilities(BadInput):
    """Rows that are not probability distributions."""


class BadFile(BadInput):
    """A file that is missing, damaged or of the wrong kind."""


class LedgerFault(BadFile):
    """A campaign's own ledger is damaged, or its disk is full or read-only; no answer is at fault."""


class LedgerReplaced(LedgerFault):
    """The ledger's file was deleted or replaced while the campaign was open: nothing more is written."""


class OlderLedger(BadFile):
    """A campaign that an older Tailwise has written and that was opened for reading alone."""


class PoolExhausted(TailwiseError, ValueError):
    """More picks were asked for than there are unlabelled images."""


class TargetUnreachable(TailwiseError, ValueError):
    """A wish that no batch from this pool can meet."""


class UnknownName(TailwiseError, KeyError):
    """A name that is not registered."""

    __str__ = Exception.__str__  # the message itself: KeyError would show its repr


class LedgerBusy(TailwiseError, RuntimeError):
    """Another program holds the campaign's ledger."""


class NewerLedger(TailwiseError, RuntimeError):
    """A campaign that a newer Tailwise has written."""


class OutOfFiles(TailwiseError, RuntimeError):
    """Too many files are open in this process or on this machine; nothing is wrong with the file that was asked for."""


class MissingExtra(TailwiseError, ImportError):
    """An optional dependency is needed and is not installed."""

    @classmethod
    def named(cls, purpose: str, package: str, extra: str) -> MissingExtra:
        """Name the exact command that installs it."""
        return cls(f"{purpose} needs {package}, which is not installed; run: pip install 'tailwise[{extra}]'")


class ClusterLost(TailwiseError, RuntimeError):
    """A cluster is full, or loses what it holds again and again."""


class WorkersLost(TailwiseError, RuntimeError):
    """Worker processes were killed or could not start, again and again."""


class SolverFailed(TailwiseError, RuntimeError):
    """HiGHS ended in a state that cannot be used, or a lower bound is above the objective of a batch."""


class CalibrationWarning(UserWarning):
    """Confidence and accuracy on labelled images disagree, so expected counts cannot be trusted."""
