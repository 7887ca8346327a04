//! Tenure writes and reads its nodes as the page on formats says.

use crate::{Scene as Place, server::ONE};
use std::sync::Arc;
use tenure_conformance::format::{Page, Scene};
use zookeeper_client::{Acls, CreateMode};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md");
const PREFIX: &str = "/tenure";
/// Tokens are numbers of the server's own, and these are below them.
const NO_TOKEN: u64 = 0;

/// The nodes below this one, each as the command of `zkCli.sh` that makes it, and in its order.
async fn commands(place: &Place) -> Vec<String> {
    let (mut commands, mut below) = (Vec::new(), vec![place.prefix.clone()]);
    while let Some(path) = below.pop() {
        // The server deletes an empty container at a time of its own.
        if path.ends_with("/released") || path.ends_with("/forced") {
            continue;
        }
        let mut children = place.eyes.list_children(&path).await.unwrap();
        children.sort_by(|one, other| other.cmp(one));
        below.extend(children.iter().map(|child| format!("{path}/{child}")));
        let (data, stat) = place.eyes.get_data(&path).await.unwrap();
        let kind = if stat.ephemeral_owner == 0 { "" } else { "-e " };
        let (path, data) = (path.replacen(&place.prefix, PREFIX, 1), String::from_utf8(data).unwrap());
        let path = match path.split_once("-from-").map(|(claim, rest)| (claim, rest.split_once('-'))) {
            Some((claim, Some((_token, rest)))) => format!("{claim}-from-{{token 8}}-{rest}"),
            _ => path,
        };
        commands.push(format!("create {kind}{path} {data}").trim_end().to_owned());
    }
    commands
}

#[tokio::test]
async fn nodes_are_written_as_the_page_says() {
    let Some(place) = Place::on(&ONE, "written").await else { return };
    let [client, other] = [place.backend().await, place.backend().await];
    let scene = Scene::play(&client, Arc::new(other)).await.unwrap();
    Page::of(PAGE, "ZooKeeper").check(&scene, &commands(&place).await).unwrap();
}

#[tokio::test]
async fn nodes_of_the_page_are_read() {
    let Some(place) = Place::on(&ONE, "read").await else { return };
    let entries = Page::of(PAGE, "ZooKeeper").entries(NO_TOKEN).unwrap();
    for line in &entries.lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let (mode, path, data) = match words[..] {
            ["create", "-e", path, data] => (CreateMode::Ephemeral, path, data),
            ["create", path] => (CreateMode::Persistent, path, ""),
            ["create", path, data] => (CreateMode::Persistent, path, data),
            _ => panic!("{line}"),
        };
        let path = path.replacen(PREFIX, &place.prefix, 1);
        place.eyes.create(&path, data.as_bytes(), &mode.with_acls(Acls::anyone_all())).await.unwrap();
    }
    entries.read(&place.backend().await).await.unwrap();
}
