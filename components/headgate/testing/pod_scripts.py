"""
How a manifest defines what its pods do, for the simulated cluster's kubelets and kwok's stages.

Annotations of a pod define how long its containers run (`RUN_ANNOTATION`, ms), how they end (`EXIT_ANNOTATION`, the
exit code), how long they take to become ready (`START_ANNOTATION`, ms) and to end when they are terminated
(`STOP_ANNOTATION`, ms). One that may end (restart policy Never or OnFailure) without an annotation runs for `RUN_MS`;
others run until they are deleted.
"""

from typing import Final

RUN_ANNOTATION: Final = "headgate.dev/run-ms"
EXIT_ANNOTATION: Final = "headgate.dev/exit-code"
START_ANNOTATION: Final = "headgate.dev/start-ms"
STOP_ANNOTATION: Final = "headgate.dev/stop-ms"

RUN_MS: Final = 1000

RESTART_BACKOFF_MS: Final = 10_000
"""The first pause before a failed container is started again; it doubles up to `RESTART_BACKOFF_MS_MAX`."""

RESTART_BACKOFF_MS_MAX: Final = 300_000
