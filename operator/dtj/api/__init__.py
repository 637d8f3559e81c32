"""The contract with users, without I/O: types, rules, names, and the CRD generated from them."""
