"""Ops: functions that add expressions to a fusion. NumPy names, broadcasting and promotion.

Each module declares which of its names are public. Importing this package plugs the Python operators into tensors.
"""

from taskfuse.ir.calls import bind_operators
from taskfuse.ops import (
    activations,
    argreduce,
    associative,
    attention,
    attention_backward,
    channel_norms,
    composite,
    convolution,
    create,
    diagonals,
    elementwise,
    folds,
    gates,
    grids,
    grouped,
    indexing,
    jagged,
    linalg,
    losses,
    missing,
    number_parts,
    order,
    padded_groups,
    pointwise,
    ragged_attention,
    random,
    rearrange,
    reduce,
    resample,
    scaled,
    scan,
    search,
    select,
    sequences,
    special,
    stacks,
    statistics,
    tensor_products,
    views,
    windows,
)
from taskfuse.ops import einsum as products
from taskfuse.ops import gather as gathers
from taskfuse.ops import scatter as scatters
from taskfuse.ops.activations import *
from taskfuse.ops.argreduce import *
from taskfuse.ops.associative import *
from taskfuse.ops.attention import *
from taskfuse.ops.attention_backward import *
from taskfuse.ops.channel_norms import *
from taskfuse.ops.composite import *
from taskfuse.ops.convolution import *
from taskfuse.ops.create import *
from taskfuse.ops.diagonals import *
from taskfuse.ops.einsum import *
from taskfuse.ops.elementwise import *
from taskfuse.ops.folds import *
from taskfuse.ops.gates import *
from taskfuse.ops.gather import *
from taskfuse.ops.grids import *
from taskfuse.ops.grouped import *
from taskfuse.ops.indexing import *
from taskfuse.ops.jagged import *
from taskfuse.ops.linalg import *
from taskfuse.ops.losses import *
from taskfuse.ops.missing import *
from taskfuse.ops.number_parts import *
from taskfuse.ops.operators import Operators
from taskfuse.ops.order import *
from taskfuse.ops.padded_groups import *
from taskfuse.ops.pointwise import *
from taskfuse.ops.ragged_attention import *
from taskfuse.ops.random import *
from taskfuse.ops.rearrange import *
from taskfuse.ops.reduce import *
from taskfuse.ops.registry import supports
from taskfuse.ops.resample import *
from taskfuse.ops.scaled import *
from taskfuse.ops.scan import *
from taskfuse.ops.scatter import *
from taskfuse.ops.search import *
from taskfuse.ops.select import *
from taskfuse.ops.sequences import *
from taskfuse.ops.special import *
from taskfuse.ops.stacks import *
from taskfuse.ops.statistics import *
from taskfuse.ops.tensor_products import *
from taskfuse.ops.views import *
from taskfuse.ops.windows import *

__all__: list[str] = ["supports"]
__all__ += activations.__all__
__all__ += argreduce.__all__
__all__ += associative.__all__
__all__ += attention.__all__
__all__ += attention_backward.__all__
__all__ += composite.__all__
__all__ += convolution.__all__
__all__ += create.__all__
__all__ += products.__all__
__all__ += elementwise.__all__
__all__ += gathers.__all__
__all__ += indexing.__all__
__all__ += grouped.__all__
__all__ += jagged.__all__
__all__ += linalg.__all__
__all__ += missing.__all__
__all__ += number_parts.__all__
__all__ += order.__all__
__all__ += padded_groups.__all__
__all__ += pointwise.__all__
__all__ += ragged_attention.__all__
__all__ += random.__all__
__all__ += rearrange.__all__
__all__ += reduce.__all__
__all__ += folds.__all__
__all__ += resample.__all__
__all__ += scaled.__all__
__all__ += scan.__all__
__all__ += scatters.__all__
__all__ += search.__all__
__all__ += select.__all__
__all__ += special.__all__
__all__ += gates.__all__
__all__ += statistics.__all__
__all__ += grids.__all__
__all__ += diagonals.__all__
__all__ += losses.__all__
__all__ += stacks.__all__
__all__ += tensor_products.__all__
__all__ += channel_norms.__all__
__all__ += sequences.__all__
__all__ += views.__all__
__all__ += windows.__all__

bind_operators(Operators())
