//! What one instance does next.
