"""What a stored page belongs to: the computation of a call, looked at before each call.

`computation` names it, from `pictures` of the models and `contents` of their tensors; `setups`
checks each setup of the models before it is served, and says how long a prompt may be.
"""
