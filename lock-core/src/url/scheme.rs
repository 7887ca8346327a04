//! The scheme of a URL.

/// A scheme of a store's URLs.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// How the URL is written: `name:PATH` for a file, `name://HOST` and more for servers; the name in lower case.
    pub form: &'static str,
    /// Where the locks live, in a few words.
    pub about: &'static str,
}

impl Scheme {
    /// The text before the colon.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.form.split(':').next().unwrap_or_default()
    }

    /// Whether the URL names one or more hosts.
    pub(super) fn has_servers(&self) -> bool {
        self.form.contains("://")
    }

    fn has_path(&self) -> bool {
        self.form.ends_with(":PATH")
    }
}

/// Lists the names of these schemes for a message: `memory, sqlite, redis`, or `none`.
pub fn scheme_names<'a>(schemes: impl IntoIterator<Item = &'a Scheme>) -> String {
    let names: Vec<&str> = schemes.into_iter().map(Scheme::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The part of a refused URL that is safe to repeat.
///
/// For a URL with a host, this is only the scheme, since a password may be what spoilt the URL's structure.
pub(super) fn shown(url: &str, scheme: Option<&Scheme>) -> String {
    let beginning = url.split(['?', '#']).next().unwrap_or_default();
    let safe = match url.split_once(':') {
        None if url.contains('@') => "…".to_owned(),
        None => beginning.to_owned(),
        Some((name, rest)) => {
            let has_host = rest.starts_with("//") && !rest.starts_with("///");
            match scheme {
                Some(scheme) if scheme.has_path() && !has_host && !rest.contains('@') => beginning.to_owned(),
                Some(_) => format!("{name}:…"),
                None if is_word(name) && !may_be_login(rest) => format!("{name}:…"),
                None => "…".to_owned(),
            }
        }
    };
    let mut cut: String = safe.chars().take(300).collect();
    if cut.len() < safe.len() {
        cut.push('…');
    }
    cut
}

/// Whether `rest`, the text after the first colon, makes a login of the text before it: in `word:word@host`, even the
/// first word may be a password.
pub(super) fn may_be_login(rest: &str) -> bool {
    !rest.starts_with("//") && rest.contains('@')
}

/// The URL that a path stands for, if the SQLite store is known: `/srv/locks.db`, `./locks`. Other text without a colon
/// may be a password.
pub(super) fn of_path(text: &str, known: &[&Scheme]) -> Option<String> {
    let is_path = ["/", "./", "../"].iter().any(|start| text.starts_with(start))
        || text.rsplit_once('.').is_some_and(|(_, end)| end == "db");
    let is_safe = is_path && !text.contains(['@', '?', '#']) && text.len() <= 300;
    let sqlite = known.iter().find(|scheme| scheme.name() == "sqlite" && is_safe)?;
    Some(format!("{}:{text}", sqlite.name()))
}

/// The name of the scheme that other programs call so.
pub(super) fn usual_name(word: &str) -> &str {
    match word.to_ascii_lowercase().as_str() {
        "pg" | "pgsql" => "postgres",
        "valkey" => "redis",
        "zk" => "zookeeper",
        _ => word,
    }
}

/// The usual ports of servers, each with the scheme of their store.
const PORTS: [(&str, &str); 6] = [
    ("6379", "redis"),
    ("5432", "postgres"),
    ("3306", "mysql"),
    ("2181", "zookeeper"),
    ("2379", "etcd"),
    ("4222", "nats"),
];

/// The beginning of the URL that `host:rest` probably stands for, if `rest` begins with the usual port of a known store,
/// or is another port. Repeats only a usual port: anything else may be a password.
pub(super) fn by_port(host: &str, rest: &str, known: &[&Scheme]) -> Option<String> {
    let port = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let usual = PORTS.into_iter().find(|(usual, _)| *usual == port);
    let is_port = rest == port && host.contains('.') && port.parse::<u16>().is_ok();
    let ((port, scheme), more) = match usual {
        Some(usual) => (usual, if rest == port { "" } else { "…" }),
        None if is_port => (("PORT", "redis"), ""),
        None => return None,
    };
    let is_known = known.iter().any(|known| known.name() == scheme);
    (is_known && is_word(host)).then(|| format!("{scheme}://{host}:{port}{more}"))
}

pub(super) fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c))
}
