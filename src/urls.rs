//! The schemes and parameters that [`connect`](crate::connect) understands, as data: for documentation, for the
//! command's help, and for errors that list what would be valid.
//!
//! A URL is `scheme:where?name=value&name=value`. `%XX` is decoded in paths and values; `+` is a plus. Everything that
//! is not understood is refused, with the list of what is: an unknown parameter, one that is given twice, one that has
//! no value, a fragment (`#`). `@`, `&`, `?`, `#` and `%` are written `%40`, `%26`, `%3F`, `%23` and `%25` where they
//! are meant themselves.

use crate::options::{self, Options};
use std::fmt;

/// One kind of URL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scheme {
    /// What the URL begins with, before the colon.
    pub name: &'static str,
    /// How the URL is written.
    pub form: &'static str,
    /// The feature of this crate that the store needs.
    pub feature: &'static str,
    /// Whether that feature is built into this program.
    pub built_in: bool,
    /// Where the locks live.
    pub about: &'static str,
}

/// Every scheme, also those whose feature is off.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "memory",
        form: "memory:",
        feature: "memory",
        built_in: cfg!(feature = "memory"),
        about: "this process's memory; each connection is a store of its own",
    },
    Scheme {
        name: "sqlite",
        form: "sqlite:PATH",
        feature: "sqlite",
        built_in: cfg!(feature = "sqlite"),
        about: "a SQLite file, for the processes of one machine",
    },
    Scheme {
        name: "redis",
        form: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "one Redis server",
    },
    Scheme {
        name: "rediss",
        form: "rediss://[USER:PASSWORD@]HOST[:PORT][/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "one Redis server, over TLS",
    },
    Scheme {
        name: "redis+unix",
        form: "redis+unix:PATH",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "one Redis server, over a Unix socket",
    },
    Scheme {
        name: "redis+sentinel",
        form: "redis+sentinel://[USER:PASSWORD@]HOST,HOST/SERVICE[/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "Redis with Sentinel failover",
    },
    Scheme {
        name: "rediss+sentinel",
        form: "rediss+sentinel://[USER:PASSWORD@]HOST,HOST/SERVICE[/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "Redis with Sentinel failover, over TLS",
    },
    Scheme {
        name: "redis+cluster",
        form: "redis+cluster://[USER:PASSWORD@]HOST,HOST",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "a Redis Cluster",
    },
    Scheme {
        name: "rediss+cluster",
        form: "rediss+cluster://[USER:PASSWORD@]HOST,HOST",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "a Redis Cluster, over TLS",
    },
    Scheme {
        name: "redlock",
        form: "redlock://[USER:PASSWORD@]HOST,HOST,HOST[/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "a majority of independent Redis servers",
    },
    Scheme {
        name: "rediss+redlock",
        form: "rediss+redlock://[USER:PASSWORD@]HOST,HOST,HOST[/DB]",
        feature: "redis",
        built_in: cfg!(feature = "redis"),
        about: "a majority of Redis servers, over TLS",
    },
    Scheme {
        name: "postgres",
        form: "postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE",
        feature: "postgres",
        built_in: cfg!(feature = "postgres"),
        about: "PostgreSQL",
    },
    Scheme {
        name: "mysql",
        form: "mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE",
        feature: "mysql",
        built_in: cfg!(feature = "mysql"),
        about: "MySQL",
    },
    Scheme {
        name: "mariadb",
        form: "mariadb://[USER:PASSWORD@]HOST[:PORT]/DATABASE",
        feature: "mysql",
        built_in: cfg!(feature = "mysql"),
        about: "MariaDB",
    },
    Scheme {
        name: "zookeeper",
        form: "zookeeper://[USER:PASSWORD@]HOST,HOST,HOST[/CHROOT]",
        feature: "zookeeper",
        built_in: cfg!(feature = "zookeeper"),
        about: "a ZooKeeper ensemble",
    },
    Scheme {
        name: "zookeeper+tls",
        form: "zookeeper+tls://[USER:PASSWORD@]HOST,HOST,HOST[/CHROOT]",
        feature: "zookeeper-tls",
        built_in: cfg!(feature = "zookeeper-tls"),
        about: "a ZooKeeper ensemble, over TLS",
    },
];

/// One parameter of a URL: `?name=value`.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What values it can have.
    pub takes: &'static str,
    /// What it is when the URL does not say.
    pub default: &'static str,
    /// The features of the stores that it is for; none means every store. What is for `zookeeper` is for
    /// `zookeeper-tls` too.
    pub stores: &'static [&'static str],
    /// What it does.
    pub about: &'static str,
    /// Reads a value.
    pub(crate) read: Read,
}

/// Who makes sense of a parameter's value.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    /// tenure. The function takes the value in, and tells whether it is one.
    Here(fn(&mut Options, &str) -> bool),
    /// The database's driver, to which the parameter is handed on. Only these values, unless there are none.
    Driver(&'static [&'static str]),
}

/// Every parameter.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "lease",
        takes: "a duration from 100ms to 365days",
        default: "30s",
        stores: &[],
        about: "how long the store keeps a lock for a silent holder",
        read: Read::Here(options::lease),
    },
    Parameter {
        name: "prefix",
        takes: "1 to 200 bytes of UTF-8 without control characters",
        default: "none; tenure: in Redis, /tenure in ZooKeeper",
        stores: &[],
        about: "a namespace: locks of different prefixes never meet",
        read: Read::Here(options::prefix),
    },
    Parameter {
        name: "strategy",
        takes: "lease-row or row-lock",
        default: "lease-row",
        stores: &["postgres", "mysql"],
        about: "what a lock is: a row that says who holds it, or a row that a connection has locked",
        read: Read::Here(options::strategy),
    },
    Parameter {
        name: "table",
        takes: "1 to 63 letters, digits and underscores of ASCII, not beginning with a digit",
        default: "tenure_locks; tenure_row_locks for row locks",
        stores: &["sqlite", "postgres", "mysql"],
        about: "the table",
        read: Read::Here(options::table),
    },
    Parameter {
        name: "create_table",
        takes: "true or false",
        default: "true",
        stores: &["sqlite", "postgres", "mysql"],
        about: "whether the table is created when it is missing",
        read: Read::Here(options::create_table),
    },
    Parameter {
        name: "create_directory",
        takes: "true or false",
        default: "false",
        stores: &["sqlite"],
        about: "whether the file's directory is created when it is missing",
        read: Read::Here(options::create_directory),
    },
    Parameter {
        name: "poll",
        takes: "a duration from 1ms to 1m",
        default: "50ms in SQLite, 200ms in MySQL, 2s in PostgreSQL",
        stores: &["sqlite", "postgres", "mysql"],
        about: "how long a waiter lets pass at most between two looks",
        read: Read::Here(options::poll),
    },
    Parameter {
        name: "busy_timeout",
        takes: "a duration from 1ms to 10m",
        default: "5s",
        stores: &["sqlite"],
        about: "how long a request waits while others write to the file",
        read: Read::Here(options::busy_timeout),
    },
    Parameter {
        name: "connect_timeout",
        takes: "a duration from 1ms to 10m, in ZooKeeper from 10ms",
        default: "2s in Redis, 5s in databases, 10s in ZooKeeper",
        stores: &["redis", "postgres", "mysql", "zookeeper"],
        about: "how long an attempt to connect may take",
        read: Read::Here(options::connect_timeout),
    },
    Parameter {
        name: "response_timeout",
        takes: "a duration from 1ms to 10m, in ZooKeeper from 10ms",
        default: "2s in Redis, 5s elsewhere",
        stores: &["redis", "postgres", "mysql", "zookeeper"],
        about: "how long the server may take to answer before it counts as unavailable",
        read: Read::Here(options::response_timeout),
    },
    Parameter {
        name: "remember",
        takes: "a duration from 1m to 365days",
        default: "1day",
        stores: &["redis"],
        about: "for how long the last token of an unused name is kept; then it begins again from the server's clock",
        read: Read::Here(options::remember),
    },
    Parameter {
        name: "fair",
        takes: "true or false",
        default: "false",
        stores: &["sqlite", "redis", "postgres", "mysql"],
        about: "whether waiters of all processes are served in the order in which they came",
        read: Read::Here(options::fair),
    },
    Parameter {
        name: "replicas",
        takes: "0 to 100",
        default: "0",
        stores: &["redis"],
        about: "how many replicas must have a grant before it is one",
        read: Read::Here(options::replicas),
    },
    Parameter {
        name: "node_timeout",
        takes: "a duration from 1ms to 1m",
        default: "500ms",
        stores: &["redis"],
        about: "redlock alone: how long one server may take for one round while the others are no majority",
        read: Read::Here(options::node_timeout),
    },
    Parameter {
        name: "connections",
        takes: "1 to 64; for row locks 1 to 1000",
        default: "2; 20 for row locks",
        stores: &["postgres", "mysql"],
        about: "over how many connections names are spread, or how many row locks may be held or waited for; a few come on top",
        read: Read::Here(options::connections),
    },
    Parameter {
        name: "durability",
        takes: "full or relaxed",
        default: "full",
        stores: &["postgres"],
        about: "whether a commit waits for the disk; relaxed forgets the last moments when the server crashes",
        read: Read::Here(options::durability),
    },
    Parameter {
        name: "pooler",
        takes: "true or false",
        default: "false",
        stores: &["postgres"],
        about: "whether a pooler in transaction mode stands between; nothing of a session is used then",
        read: Read::Here(options::pooler),
    },
    Parameter {
        name: "session_timeout",
        takes: "a duration from 500ms to 1h",
        default: "30s",
        stores: &["zookeeper"],
        about: "how long the servers keep the session of a silent client, and all its locks",
        read: Read::Here(options::session_timeout),
    },
    Parameter {
        name: "nodes",
        takes: "lock or read-write",
        default: "lock",
        stores: &["zookeeper"],
        about: "which lock of Curator sees who holds alone: InterProcessMutex, or InterProcessReadWriteLock",
        read: Read::Here(options::nodes),
    },
    Parameter {
        name: "auth",
        takes: "digest or sasl",
        default: "digest",
        stores: &["zookeeper"],
        about: "how the user is shown to the servers: by a digest that they do not check, or by SASL (DIGEST-MD5; feature zookeeper-sasl)",
        read: Read::Here(options::auth),
    },
    Parameter {
        name: "tls_ca",
        takes: "a file",
        default: "none; must be given",
        stores: &["zookeeper-tls"],
        about: "the authorities that the servers' certificates are checked against, in PEM format",
        read: Read::Here(options::tls_ca),
    },
    Parameter {
        name: "tls_cert",
        takes: "a file",
        default: "none",
        stores: &["zookeeper-tls"],
        about: "the client's certificate, in PEM format",
        read: Read::Here(options::tls_cert),
    },
    Parameter {
        name: "tls_key",
        takes: "a file",
        default: "none",
        stores: &["zookeeper-tls"],
        about: "the key of that certificate, in PEM format",
        read: Read::Here(options::tls_key),
    },
    Parameter {
        name: "sslmode",
        takes: "disable, allow, prefer, require, verify-ca or verify-full",
        default: "prefer",
        stores: &["postgres"],
        about: "whether the connection is encrypted, and the server's certificate checked",
        read: Read::Driver(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]),
    },
    driver(
        "sslrootcert",
        &["postgres"],
        "a file",
        "the system's",
        "the authorities that certificates are checked against",
    ),
    driver("sslcert", &["postgres"], "a file", "none", "the client's certificate"),
    driver("sslkey", &["postgres"], "a file", "none", "the key of that certificate"),
    Parameter {
        name: "ssl-mode",
        takes: "disabled, preferred, required, verify_ca or verify_identity",
        default: "preferred",
        stores: &["mysql"],
        about: "whether the connection is encrypted, and the server's certificate checked",
        read: Read::Driver(&["disabled", "preferred", "required", "verify_ca", "verify_identity"]),
    },
    driver(
        "ssl-ca",
        &["mysql"],
        "a file",
        "the system's",
        "the authorities that certificates are checked against",
    ),
    driver("ssl-cert", &["mysql"], "a file", "none", "the client's certificate"),
    driver("ssl-key", &["mysql"], "a file", "none", "the key of that certificate"),
];

/// A parameter of a database's own, with the meaning and the name that its other clients give it.
const fn driver(
    name: &'static str,
    stores: &'static [&'static str],
    takes: &'static str,
    default: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, takes, default, stores, about, read: Read::Driver(&[]) }
}

impl Parameter {
    /// Whether the stores of this feature have this parameter.
    #[must_use]
    pub fn is_for(&self, feature: &str) -> bool {
        let part_of = |store: &&str| {
            feature.strip_prefix(store).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.stores.is_empty() || self.stores.iter().any(part_of)
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameter")
            .field("name", &self.name)
            .field("takes", &self.takes)
            .field("default", &self.default)
            .field("stores", &self.stores)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}
