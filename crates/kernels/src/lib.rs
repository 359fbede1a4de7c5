//! Every CPU hot loop, per instruction set, with a scalar oracle beside each.
