//! The content of an object, and its path.

use object_store::path::Path;
use tenure_core::record::{escape, unescape};
use uuid::Uuid;

/// The length of a nonce.
const NONCE: usize = 32;

/// The content of an object: a text and a nonce, or the nonce alone where the text was removed.
///
/// A condition names the `ETag`, which is a hash of the content, and no request removes an object on a condition. So each
/// content has a random last line: no `ETag` comes back, and a put that is late always meets another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) text: Option<String>,
    pub(crate) nonce: String,
}

impl Content {
    pub(crate) fn new(text: Option<&str>) -> Self {
        Self { text: text.map(str::to_owned), nonce: Uuid::new_v4().simple().to_string() }
    }

    pub(crate) fn write(&self) -> String {
        match &self.text {
            Some(text) => format!("{text}\n{}", self.nonce),
            None => self.nonce.clone(),
        }
    }

    /// A text that another program wrote without a nonce is a text, too.
    pub(crate) fn read(content: &str) -> Self {
        let (text, nonce) = match content.rsplit_once('\n') {
            Some((text, nonce)) => (Some(text.to_owned()), nonce),
            None if has_no_text(content.len() as u64) => (None, content),
            None => (Some(content.to_owned()), ""),
        };
        Self { text, nonce: nonce.to_owned() }
    }
}

/// Whether an object of this size has no text.
pub(crate) fn has_no_text(size: u64) -> bool {
    size <= NONCE as u64
}

/// The directory of all objects.
#[derive(Clone, Debug)]
pub(crate) struct Place(String);

impl Place {
    pub(crate) fn new(path: &str, prefix: &str) -> Self {
        let directories = path.split('/').filter(|segment| !segment.is_empty()).map(escape);
        Self(directories.chain([segment(prefix)]).collect::<Vec<_>>().join("/"))
    }

    /// S3 allows 1,024 bytes in all. A key has up to 206, each of which may become three.
    pub(crate) fn is_too_long(&self) -> bool {
        self.0.len() > 400
    }

    /// The path of the object that is put to read its date. No key has it.
    pub(crate) fn probe(&self) -> Path {
        Path::from(format!("{}/=clock", self.0))
    }

    pub(crate) fn path(&self, key: &str) -> Path {
        Path::from(match key.split_once('/') {
            Some((kind, name)) if is_directory(kind) && !name.is_empty() => {
                format!("{}/{kind}/{}", self.0, segment(name))
            }
            _ => format!("{}/{}", self.0, segment(key)),
        })
    }

    /// The directory of all keys that begin with this.
    pub(crate) fn above(&self, prefix: &str) -> Path {
        Path::from(match prefix.split_once('/') {
            Some((kind, name)) if is_directory(kind) && !name.is_empty() => format!("{}/{kind}", self.0),
            _ => self.0.clone(),
        })
    }

    /// The key of the object with this path; `None` if it is none of these.
    pub(crate) fn key(&self, path: &Path) -> Option<String> {
        let escaped = path.as_ref().strip_prefix(&self.0)?.strip_prefix('/')?;
        unescape(&escaped.replace("=2F", "/")).filter(|key| self.path(key) == *path)
    }
}

/// Whether the part of a key before its first slash names a directory.
fn is_directory(kind: &str) -> bool {
    !kind.is_empty() && escape(kind) == kind
}

/// One segment of a path. Some stores cannot have both an object and others below it, as for names `a` and `a/b`.
fn segment(text: &str) -> String {
    escape(text).replace('/', "=2F")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_is_readable() {
        let place = Place::new("/team a/", "tenure/x");
        assert_eq!(place.path("lock/é/..//a").as_ref(), "team=20a/tenure=2Fx/lock/=C3=A9=2F=2E=2E=2F=2Fa");
        assert_eq!(place.probe().as_ref(), "team=20a/tenure=2Fx/=clock");
        for other in [
            "team=20a/tenure=2Fx/lock/a/b",
            "team=20a/tenure=2Fx/=clock",
            "team=20a/tenure=2Fxy/lock/a",
            "team=20a/tenure=2Fx",
        ] {
            assert_eq!(place.key(&Path::from(other)), None, "{other}");
        }
    }

    #[test]
    fn text_without_a_mark_is_a_text() {
        let text = r#"{"edition":1,"content":{"token":1}}"#;
        assert_eq!(Content::read(text).text.as_deref(), Some(text));
        assert_eq!(Content::read(&format!("{text}\n")).text.as_deref(), Some(text));
        assert_eq!(Content::read("").text, None);
    }

    proptest! {
        #[test]
        fn key_is_read_back_and_is_below_each_beginning(key in "(/|[^\\pC]){1,40}", cut in 0..40_usize) {
            let place = Place::new("", "tenure");
            let path = place.path(&key);
            let segments = path.as_ref().split('/').count();
            prop_assert!((2..=3).contains(&segments) && path.as_ref().starts_with("tenure/"), "{}", path);
            let prefix: String = key.chars().take(cut).collect();
            prop_assert!(path.prefix_matches(&place.above(&prefix)), "{} {}", path, place.above(&prefix));
            prop_assert_eq!(place.key(&path), Some(key));
        }

        #[test]
        fn content_is_read_back_and_never_the_same(text in prop::option::of("(?s).{0,60}")) {
            let content = Content::new(text.as_deref());
            prop_assert_eq!(&Content::read(&content.write()), &content);
            prop_assert_eq!(has_no_text(content.write().len() as u64), text.is_none());
            prop_assert_ne!(content.write(), Content::new(text.as_deref()).write());
        }
    }
}
