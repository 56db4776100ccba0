//! PID 1 of an instance's pod: makes, configures, supervises and watches over one PostgreSQL.
