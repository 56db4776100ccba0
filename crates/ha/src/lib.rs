//! The election protocol as pure state machines: register, positions, quorums.
