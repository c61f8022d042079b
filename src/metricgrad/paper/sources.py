"""Sources: where each dataset comes from, how it is published, and its row in the paper's Table 1."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from metricgrad.paper.formats import Layout


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1, as printed."""

    train: int
    test: int
    features: int
    positive_share: float

    @property
    def rows(self) -> int:
        """Train and test rows together."""
        return self.train + self.test


@dataclass(frozen=True)
class File:
    """A published file: its name, its address (None if it needs an account), and its SHA-256 where published."""

    name: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from, and the numbers it must have."""

    name: str
    title: str  # in the paper
    page: str  # that describes it
    licence: str
    rows: int  # of the whole public set
    features: int
    positive: str  # meaning of a positive row
    files: tuple[File, ...] = ()  # none if it comes with scikit-learn
    layout: Layout | None = None  # of those files
    paper: PaperRow | None = None
    copies: Mapping[str, str | None] = field(default_factory=dict)  # SHA-256 of Parquet copies -> what they lack
    remark: str = ""  # why the numbers differ from the paper's
    positives: int | None = None  # where counted on a complete copy


LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
UCI = "https://archive.ics.uci.edu"
CC_BY = "CC BY 4.0 (UCI Machine Learning Repository)"
COVTYPE_NUMBERS = (
    "Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology "
    "Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm Horizontal_Distance_To_Fire_Points"
)
COVTYPE_COLUMNS = (
    *COVTYPE_NUMBERS.split(),
    *(f"Wilderness_Area{i + 1}" for i in range(4)),
    *(f"Soil_Type{i + 1}" for i in range(40)),
    "target",
)
PORTO_COPY = "20 % of the rows, 18 of the 57 features and a flag of missing values"


def _numbered(n: int) -> tuple[str, ...]:
    """Return names for unnamed features."""
    return tuple(f"f{i + 1}" for i in range(n))


def _libsvm(*names: str) -> tuple[File, ...]:
    """Return files of LIBSVM's collection, which publishes no hashes."""
    return tuple(File(name, f"{LIBSVM}/{name}") for name in names)


_TABLE = (
    Source(
        name="a9a",
        title="A9A",
        page=f"{LIBSVM}.html#a9a",
        licence="CC BY 4.0 (UCI Adult, as encoded by LIBSVM)",
        rows=48842,
        features=123,
        positive="earns over 50,000 dollars",
        positives=11687,
        files=_libsvm("a9a", "a9a.t"),
        layout=Layout("libsvm", positive=1, columns=_numbered(123)),
        paper=PaperRow(39073, 9769, 123, 0.2379),
        copies={"6edfcf3ed19233d81e52954a9d5777ea982f05abc5493592b4d31644bc5c4962": None},
    ),
    Source(
        name="ccfraud",
        title="CC-Fraud",
        page="https://www.openml.org/d/1597",
        licence="ODbL 1.0, contents DbCL 1.0 (ULB Machine Learning Group)",
        rows=284807,
        features=29,
        positive="fraudulent payment",
        positives=492,
        files=(File("creditcard.arff", "https://api.openml.org/data/v1/download/1673544/creditcard.arff"),),
        layout=Layout("arff", positive=1, target="Class", drop=("Time",)),
        paper=PaperRow(227845, 56962, 29, 0.0015),
        copies={"85df0cb679155bf2ce58029f65eb76aee5fa416e01dfdc30d1de31303b92c6b6": None},
    ),
    Source(
        name="codrna",
        title="Cod-RNA",
        page=f"{LIBSVM}.html#cod-rna",
        licence="none stated (Uzilov, Keegan and Mathews, 2006)",
        rows=488565,
        features=8,
        positive="non-coding RNA",
        files=_libsvm("cod-rna", "cod-rna.t", "cod-rna.r"),
        layout=Layout("libsvm", positive=1, columns=_numbered(8)),
        paper=PaperRow(390852, 97713, 8, 0.3346),
        copies={"6b309250aaebf0a96b7891c8d51ec8b1746cf5fc9ec738989eaac7e8a2586983": "68 % of the rows"},
    ),
    Source(
        name="covtype",
        title="CoverType",
        page=f"{UCI}/dataset/31/covertype",
        licence=CC_BY,
        rows=581012,
        features=54,
        positive="cover type 2, lodgepole pine",
        positives=283301,
        files=(
            File(
                "covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
                "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            ),
        ),
        layout=Layout("csv", positive=2, columns=COVTYPE_COLUMNS),
        paper=PaperRow(464809, 116203, 54, 0.4867),
        copies={"e7d7924b99812665f3991229a07abc56227b408f46de1819ac644acc48aa3aeb": None},
    ),
    Source(
        name="ijcnn1",
        title="IJCNN",
        page=f"{LIBSVM}.html#ijcnn1",
        licence="none stated (Prokhorov, IJCNN 2001 challenge)",
        rows=141691,
        features=22,
        positive="label 1 of the challenge",
        positives=13565,
        # ijcnn1.bz2 is training and validation rows together: adding ijcnn1.val.bz2 would repeat 14,990 rows.
        files=_libsvm("ijcnn1.bz2", "ijcnn1.t.bz2"),
        layout=Layout("libsvm", positive=1, columns=_numbered(22)),
        paper=PaperRow(125344, 31337, 22, 0.0954),
        copies={"8efcdf2b186c0f188acd08ecb8426962406d0821a961e07f6396cc605a6a30f0": None},
        remark="distinct rows; the paper counts the 14,990 validation rows twice",
    ),
    Source(
        name="porto",
        title="Porto-Seguro",
        page="https://www.kaggle.com/c/porto-seguro-safe-driver-prediction/data",
        licence="Kaggle competition rules (Porto Seguro); not to be passed on",
        rows=595212,
        features=57,
        positive="a claim was filed",
        files=(File("train.csv"),),
        layout=Layout("csv", positive=1, drop=("id",)),
        paper=PaperRow(476169, 119043, 57, 0.0368),
        copies={"873fdb6ca5e6133148a326e2059a580b179676b3f1498705e98be3b7ac380367": PORTO_COPY},
    ),
    Source(
        name="santander",
        title="Santander",
        page="https://www.kaggle.com/c/santander-customer-transaction-prediction/data",
        licence="Kaggle competition rules (Banco Santander); not to be passed on",
        rows=200000,
        features=200,
        positive="made the transaction",
        files=(File("train.csv"),),
        layout=Layout("csv", positive=1, drop=("ID_code",)),
        paper=PaperRow(160000, 40000, 200, 0.1004),
    ),
    Source(
        name="skin",
        title="Skin",
        page=f"{UCI}/dataset/229/skin+segmentation",
        licence=CC_BY,
        rows=245057,
        features=3,
        positive="not skin (the larger class, as in the paper)",
        positives=194198,
        files=(File("Skin_NonSkin.txt", f"{UCI}/ml/machine-learning-databases/00229/Skin_NonSkin.txt"),),
        layout=Layout("csv", positive=2, columns=("B", "G", "R", "target"), separator="\t"),
        paper=PaperRow(196045, 49012, 3, 0.7919),
        copies={"3d26629d57b590c088269e85a50cdcde180ab9113363992b846b00e7774d6c48": None},
    ),
    Source(
        name="susy",
        title="Susy",
        page=f"{UCI}/dataset/279/susy",
        licence=CC_BY,
        rows=5000000,
        features=18,
        positive="supersymmetric signal",
        files=(File("SUSY.csv.gz", f"{UCI}/ml/machine-learning-databases/00279/SUSY.csv.gz"),),
        layout=Layout("csv", positive=1, columns=("target", *_numbered(18))),
        paper=PaperRow(4000000, 1000000, 18, 0.4577),
        copies={"eb8074f7bbf559eda9936b5e55cbcb6f9ea93d94998a41d8367da90ddb73ffbd": "0.6 % of the rows"},
    ),
    Source(
        name="digits8",
        title="Digits, eight",
        page="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
        licence=CC_BY,
        rows=1797,
        features=64,
        positive="the digit eight",
        remark="comes with scikit-learn; not in the paper",
    ),
    Source(
        name="breast_cancer",
        title="Breast cancer",
        page="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_breast_cancer.html",
        licence=CC_BY,
        rows=569,
        features=30,
        positive="malignant (scikit-learn's class 0)",
        remark="comes with scikit-learn; not in the paper",
    ),
)

SOURCES: Mapping[str, Source] = MappingProxyType({source.name: source for source in _TABLE})
"""Every dataset by name: the paper's nine, then two that need no file."""


def names() -> tuple[str, ...]:
    """Return the name of every dataset."""
    return tuple(SOURCES)


def describe(name: str, *, sources: Mapping[str, Source] = SOURCES) -> Source:
    """Return where a dataset comes from: page, files, terms, and the paper's numbers.

    Examples
    --------
    >>> describe("skin").paper
    PaperRow(train=196045, test=49012, features=3, positive_share=0.7919)
    """
    if name not in sources:
        near = difflib.get_close_matches(str(name).lower(), sources, n=3, cutoff=0.5) or list(sources)
        raise ValueError(f"name must be a known dataset, got {name!r}; similar names: {', '.join(near)}")
    return sources[name]
