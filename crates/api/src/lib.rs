//! Database, Cache and Backup: types, defaults, schema, what a change means. Pure.
