"""The fusion IR: scalar expressions, axes and their transforms, tensors, expressions with their op maps, fusions, the task tree."""
