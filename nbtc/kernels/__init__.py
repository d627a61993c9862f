"""All hand-emitted arithmetic, told apart by schedule: panels that stream, warps in registers, plain vector rows."""
