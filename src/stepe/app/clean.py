"""``stepe clean``: from labels that cannot be trusted to a run folder with a model, ranked issues and a report.

The signature of :func:`clean` declares its options, and loads nothing that trains: the command line, config.json, the
check of a resumed run and docs/options.md are made from it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stepe.options import canonical, checked
from stepe.options.audit import Evidence, Judges, MinSuspicion, Top
from stepe.options.data import (
    Data,
    DataDir,
    Encoding,
    Features,
    Group,
    Holdout,
    Id,
    Image,
    ImageSize,
    Label,
    SplitBy,
    Test,
    Text,
    Trusted,
)
from stepe.options.method import MinKeep, NoiseRate, Probe, RhoMax, Warmup
from stepe.options.running import (
    Balanced,
    Compare,
    Decisions,
    Device,
    Epochs,
    Methods,
    Model,
    Noise,
    Out,
    Preset,
    Seed,
    Strong,
    Track,
)

if TYPE_CHECKING:
    from stepe.app.run import Run
    from stepe.app.work import Follow


@checked
def clean(
    data: Data,
    *,
    label: Label = None,
    text: Text = None,
    image: Image = None,
    features: Features = None,
    id: Id = None,
    trusted: Trusted = None,
    group: Group = None,
    split_by: SplitBy = None,
    holdout: Holdout | None = None,
    test: Test = None,
    encoding: Encoding = "utf-8",
    image_size: ImageSize = None,
    data_dir: DataDir = None,
    judges: Judges = None,
    evidence: Evidence | None = None,
    top: Top | None = None,
    min_suspicion: MinSuspicion | None = None,
    method: Methods = None,
    preset: Preset = None,
    model: Model = None,
    epochs: Epochs | None = None,
    balanced: Balanced = False,
    strong: Strong = 0.0,
    seed: Seed = 0,
    device: Device = "auto",
    rho_max: RhoMax = None,
    warmup: Warmup = None,
    probe: Probe | None = None,
    noise_rate: NoiseRate | None = None,
    min_keep: MinKeep | None = None,
    noise: Noise = None,
    compare: Compare = None,
    out: Out = None,
    decisions: Decisions | None = None,
    track: Track = (),
    resume: bool = False,
    say: Callable[[str], None] = lambda message: None,
    follow: "Follow | None" = None,
) -> "Run":
    """Find the labels that are probably wrong: judges that never saw a label say how likely it is right.

    Every option is explained in docs/options.md, by ``stepe clean --help``, and where its type is declared, in
    ``stepe.options``. With ``resume``, what is in ``out`` goes on, called with the same options. ``say`` is told what a
    person should know, and ``follow`` makes an observer that shows the progress of a run.

    Returns:
        The finished run; its folder holds everything.
    """
    from stepe.app.begin import begin

    return begin(data, canonical(clean, locals()), resume=resume, say=say, follow=follow)
