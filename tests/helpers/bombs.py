"""Small files that stand for very much."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, helper


def function_bomb(depth: int = 30, circle: bool = False) -> ModelProto:
    """Functions that each call the next one twice: 2^depth nodes out of 2.4 kB."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for index in range(depth):
        last = index == depth - 1
        called = "f0" if last and circle else f"f{index + 1}"
        kind, domain = ("Relu", "") if last and not circle else (called, "local")
        nodes = [
            helper.make_node(kind, ["x"], ["t"], domain=domain),
            helper.make_node(kind, ["t"], ["y"], domain=domain),
        ]
        functions.append(helper.make_function("local", f"f{index}", ["x"], ["y"], nodes, opsets))
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="local")], "g", value[:1], value[1:])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)
