"""Groups of operations that a converter spells out, put as one that runtimes know.

TensorFlow has no operation for LayerNorm, pads before it pools, and scales before it
takes the error function. The files become smaller and faster by writing these the way
ONNX runtimes expect them; the function stays the same.
"""

import collections
import math

import numpy as np

# The first version of the ONNX operations that has LayerNormalization.
LAYER_NORM_OPSET = 17


def rewrite(model, opset: int) -> None:
    """Rewrites the graph of an ONNX model in place.

    Args:
        model: An `onnx.ModelProto`, as tf2onnx makes it.
        opset: Its version of the ONNX operations.
    """
    if opset >= LAYER_NORM_OPSET:
        _join_layer_norms(model.graph)
    _join_pads(model.graph)
    _divide_before_erf(model.graph)
    _drop_unused(model.graph)


class _Links:
    """Who makes and who takes each tensor of a graph."""

    def __init__(self, graph):
        self.constants = {item.name: item for item in graph.initializer}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.takers = collections.defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self.takers[name].append(node)

    def made_by(self, name, *operations):
        """The chain of operations that ends in a tensor, along first inputs.

        Returns `None` if another operation comes between.
        """
        chain = []
        for operation in operations:
            node = self.makers.get(name)
            if node is None or node.op_type != operation:
                return None
            chain.append(node)
            name = node.input[0]
        return chain

    def scalar(self, name):
        """The value of a constant of one number, or `None`."""
        from onnx import numpy_helper

        if name not in self.constants:
            return None
        value = numpy_helper.to_array(self.constants[name])
        return float(value.reshape(-1)[0]) if value.size == 1 else None


def _join_layer_norms(graph):
    """`(x - mean) * (gamma / sqrt(variance + epsilon)) + beta` as one operation."""
    from onnx import helper

    links, joined = _Links(graph), []
    for node in graph.node:
        found = _find_layer_norm(node, links)
        if found is not None:
            source, gamma, beta, epsilon = found
            joined.append(
                helper.make_node(
                    "LayerNormalization",
                    [source, gamma, beta],
                    list(node.output),
                    name=f"{node.name}/LayerNormalization",
                    axis=-1,
                    epsilon=epsilon,
                )
            )
        else:
            joined.append(node)
    _replace_nodes(graph, joined)


def _find_layer_norm(node, links):
    """Input, gamma, beta and epsilon of the LayerNorm that ends in an addition."""
    if node.op_type != "Add" or node.input[1] not in links.constants:
        return None
    product = links.made_by(node.input[0], "Mul")
    if product is None:
        return None
    centered, factor = product[0].input
    difference = links.made_by(centered, "Sub")
    deviation = links.made_by(factor, "Mul", "Reciprocal", "Sqrt", "Add")
    if difference is None or deviation is None:
        return None
    gamma, shifted = deviation[0].input[1], deviation[3]
    source, mean = difference[0].input
    variance = links.makers.get(shifted.input[0])
    square = variance and links.makers.get(variance.input[0])
    epsilon = links.scalar(shifted.input[1])
    is_norm = (
        gamma in links.constants
        and epsilon is not None
        and _is_mean_of_rows(links.makers.get(mean), source, links)
        and square is not None
        and _is_mean_of_rows(variance, square.output[0], links)
        and square.op_type == "Mul"
        and list(square.input) == [centered, centered]
    )
    return (source, gamma, node.input[1], epsilon) if is_norm else None


def _is_mean_of_rows(node, source, links):
    """Whether a node takes the mean over the last axis of `(batch, tokens, dim)`."""
    if node is None or node.input[0] != source:
        return False
    if node.op_type == "GlobalAveragePool":
        return True
    if node.op_type != "ReduceMean":
        return False
    # The axes are an attribute before version 18 of the operations, an input since.
    if len(node.input) == 2:
        return links.scalar(node.input[1]) in (-1, 2)
    axes = {item.name: list(item.ints) for item in node.attribute}.get("axes")
    return axes in ([-1], [2])


def _join_pads(graph):
    """The padding of a max-pool, which a convolution and ReLU precede, in the pool.

    A pool pads with minus infinity. After a ReLU zero is as good, for no value of the
    window is below it.
    """
    from onnx import helper
    from onnx import numpy_helper

    links, joined = _Links(graph), []
    for node in graph.node:
        chain = links.made_by(node.input[0], "Pad", "Relu") if node.input else None
        if node.op_type != "MaxPool" or chain is None:
            joined.append(node)
            continue
        pad = chain[0]
        amounts = links.constants.get(pad.input[1]) if len(pad.input) == 2 else None
        if amounts is None:
            joined.append(node)
            continue
        _, _, top, left, _, _, bottom, right = numpy_helper.to_array(amounts).tolist()
        attributes = {
            item.name: helper.get_attribute_value(item) for item in node.attribute
        }
        attributes |= {"pads": [top, left, bottom, right]}
        attributes.pop("auto_pad", None)
        joined.append(
            helper.make_node(
                "MaxPool", [pad.input[0]], list(node.output), node.name, **attributes
            )
        )
    _replace_nodes(graph, joined)


def _divide_before_erf(graph):
    """`erf(x * sqrt(0.5))` as `erf(x / sqrt(2))`, by which onnxruntime knows GELU."""
    from onnx import numpy_helper

    links, root = _Links(graph), "square_root_of_two"
    used = False
    for node in graph.node:
        takers = links.takers[node.output[0]] if node.op_type == "Mul" else []
        factor = links.scalar(node.input[1]) if len(node.input) == 2 else None
        if (
            [taker.op_type for taker in takers] == ["Erf"]
            and factor is not None
            and math.isclose(factor, math.sqrt(0.5), rel_tol=1e-6)
        ):
            node.op_type, node.input[1], used = "Div", root, True
    if used:
        value = np.array(math.sqrt(2), "float32")
        graph.initializer.append(numpy_helper.from_array(value, root))


def _replace_nodes(graph, nodes):
    del graph.node[:]
    graph.node.extend(nodes)


def _drop_unused(graph):
    """Removes nodes and constants that no output needs."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed.update(node.input)
    _replace_nodes(graph, kept[::-1])
    constants = [item for item in graph.initializer if item.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(constants)
