//! Names that paths cannot hold.

use crate::{Scene, server::ONE};

#[tokio::test]
async fn every_name_is_a_lock_of_its_own() {
    let Some(scene) = Scene::on(&ONE, "names").await else { return };
    let locks = scene.locks().await;
    let names = [
        "a",
        "A",
        "a ",
        " a",
        ".",
        "..",
        "...",
        "/",
        "//",
        "a/b",
        "a%2Fb",
        "%",
        "%2F",
        "..%2F",
        "{a}b",
        "*",
        "\\",
        "\"'",
        "zookeeper",
        "🔒",
        "é",
        "e\u{301}",
        "\u{e000}",
        "\u{fff0}",
        "\u{fffd}",
        "\u{10ffff}",
        "\u{d7ff}",
        "名前",
        "-0000000001",
        "orders-0000000001",
    ];
    let longest = ["é".repeat(100), "🔒".repeat(50), "/".repeat(200), "x".repeat(200)];
    let names: Vec<&str> = names.into_iter().chain(longest.iter().map(String::as_str)).collect();
    let mut guards = Vec::new();
    for name in &names {
        let guard =
            locks.lock(name).try_acquire().await.unwrap_or_else(|error| panic!("{name:?}: {error:?}"));
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} met another name")));
    }
    let listed = locks.list("").await.unwrap();
    let mut expected = names.clone();
    expected.sort_unstable();
    assert_eq!(listed.iter().map(|holder| &*holder.name).collect::<Vec<_>>(), expected);
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert!(locks.list("").await.unwrap().is_empty());
}
