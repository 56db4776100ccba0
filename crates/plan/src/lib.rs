//! What the operator decides: World in, Decision out. Pure.
