//! A Redis server's place among others.

/// A server whose settings are a file, because Redis itself changes them: a failover outlives a restart.
#[derive(Debug)]
pub(crate) struct RedisNode {
    pub(crate) port: u16,
    pub(crate) role: Role,
    settings: Vec<String>,
}

/// What a node is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Has data, and a master or replicas.
    Data,
    /// Has data, and a place in a cluster that goes with its files.
    ClusterData,
    /// Watches the others.
    Sentinel,
}

impl RedisNode {
    pub(crate) fn new(port: u16, role: Role, settings: impl IntoIterator<Item = String>) -> Self {
        let own = [format!("port {port}"), "bind 127.0.0.1".into(), "protected-mode no".into()];
        // As for one server: no write is kept back after its reply.
        let data = ["save \"\"", "appendonly yes", "appendfsync no", "repl-diskless-sync-delay 0"]
            .map(str::to_owned);
        let data = data.into_iter().filter(|_| role != Role::Sentinel);
        Self { port, role, settings: own.into_iter().chain(data).chain(settings).collect() }
    }

    /// Writes the settings unless there are some, and serves.
    pub(crate) fn script(&self) -> String {
        let lines: Vec<String> = self.settings.iter().map(|line| format!("'{line}'")).collect();
        let option = if self.role == Role::Sentinel { " --sentinel" } else { "" };
        format!(
            "[ -f node.conf ] || printf '%s\\n' {} >node.conf; exec redis-server ./node.conf{option}",
            lines.join(" ")
        )
    }
}
