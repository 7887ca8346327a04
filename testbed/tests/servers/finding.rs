//! A server is found by the ways that are allowed, in their order; and what is not found says why.
//!
//! The environment decides, so each case runs in this program started again.

use crate::{CHILD, LONG, client::connect};
use libtest_mimic::{Failed, Trial};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;
use tenure_conformance::pause;
use tenure_conformance::saboteur::{Hurt, SabotageError};
use tenure_testbed::{Kind, Server, Unavailable, Use, Way};
use testcontainers::bollard::models::ContainerCreateBody;
use testcontainers::bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptionsBuilder,
};
use testcontainers::core::client::docker_client_instance;
use tokio::runtime::Runtime;

type Found = Result<Server, Unavailable>;

/// The cases, each with its environment. `{address}` is that of a running Redis server.
const CASES: [(&str, &[(&str, &str)]); 6] = [
    ("is_found_by_its_url", &[("TENURE_TEST_REDIS_URL", "redis://{address}/")]),
    ("is_not_replaced_when_named_in_vain", &[("TENURE_TEST_REDIS_URL", "redis://127.0.0.1:1/")]),
    ("hides_its_password", &[("TENURE_TEST_REDIS_URL", "redis://:sesame@{address}/")]),
    ("refuses_an_unknown_way", &[("TENURE_TEST_USE", "podman")]),
    ("is_a_program_where_there_is_no_image", &[("TENURE_TEST_REDIS_IMAGE", "registry.invalid/none:1")]),
    ("says_why_there_is_none", &[("DOCKER_HOST", "tcp://127.0.0.1:1"), ("PATH", "/nowhere")]),
];

/// A case that does not wait for what it looks for.
const GIVEN_UP: &str = "is_given_up_when_nobody_waits";

pub(crate) fn trials(runtime: &Runtime, allowed: Use) -> Vec<Trial> {
    let start = |way| {
        let allowed = allowed == Use::Any || allowed == way;
        allowed.then(|| runtime.block_on(Server::start(Kind::Redis, way)).ok()).flatten()
    };
    let local = start(Use::Local).map(std::sync::Arc::new);
    let cases = CASES.map(|(name, environment)| {
        let server = local.clone();
        let ignored = server.is_none();
        let run = move || {
            let address = server.as_ref().and_then(|server| server.address()).ok_or("no server")?;
            let mut child = Command::new(std::env::current_exe()?);
            for variable in ["TENURE_TEST_REDIS_URL", "TENURE_TEST_REDIS_IMAGE", "TENURE_TEST_USE"] {
                child.env_remove(variable);
            }
            for (variable, value) in environment {
                child.env(variable, value.replace("{address}", &address.to_string()));
            }
            succeed(child.env(CHILD, format!("find {name}")))
        };
        Trial::test(format!("finding::{name}"), run).with_ignored_flag(ignored)
    });
    let docker = start(Use::Docker);
    let sweeps = move || {
        let runtime = Runtime::new()?;
        runtime.block_on(sweeps_what_the_dead_left());
        Ok(())
    };
    let sweeps =
        Trial::test("finding::sweeps_what_the_dead_left", sweeps).with_ignored_flag(docker.is_none());
    let homes = || {
        sweeps_the_homes_of_the_dead();
        Ok(())
    };
    let homes =
        Trial::test("finding::sweeps_the_homes_of_the_dead", homes).with_ignored_flag(local.is_none());
    let given_up = Trial::test(format!("finding::{GIVEN_UP}"), || {
        // It runs and never answers.
        let programs = tempfile::tempdir()?;
        let program = programs.path().join("redis-server");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 300\n")?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let path = format!("{}:{}", programs.path().display(), std::env::var("PATH")?);
        let mut child = Command::new(std::env::current_exe()?);
        child.env("PATH", path).env(Use::VARIABLE, "local").env_remove("TENURE_TEST_REDIS_URL");
        succeed(child.env(CHILD, format!("find {GIVEN_UP}")))
    });
    cases.into_iter().chain([sweeps, homes, given_up]).collect()
}

fn succeed(child: &mut Command) -> Result<(), Failed> {
    let output = child.output()?;
    if output.status.success() { Ok(()) } else { Err(Failed::from(String::from_utf8_lossy(&output.stderr))) }
}

/// What the process started again does.
pub(crate) async fn run(name: &str) {
    if name == GIVEN_UP {
        return is_given_up_when_nobody_waits().await;
    }
    let found = Server::find(Kind::Redis).await;
    match name {
        "is_found_by_its_url" => is_found_by_its_url(found).await,
        "is_not_replaced_when_named_in_vain" => is_not_replaced_when_named_in_vain(found),
        "hides_its_password" => hides_its_password(found),
        "refuses_an_unknown_way" => refuses_an_unknown_way(found),
        "is_a_program_where_there_is_no_image" => is_a_program_where_there_is_no_image(found),
        "says_why_there_is_none" => says_why_there_is_none(found),
        name => panic!("no case {name}"),
    }
}

async fn is_found_by_its_url(found: Found) {
    let server = found.unwrap();
    assert_eq!(*server.way(), Way::Environment { variable: "TENURE_TEST_REDIS_URL".into() });
    assert_eq!(server.to_string(), "redis (named by TENURE_TEST_REDIS_URL)");
    assert_ne!(server.url(), server.direct_url(), "a proxy stands before it");
    let mut client = connect(&server).await.unwrap();
    client.put("given").await.unwrap();
    let saboteur = server.saboteur();
    for hurt in [Hurt::Freeze, Hurt::Kill, Hurt::Wipe, Hurt::Partition] {
        assert!(!saboteur.can(hurt), "{hurt}: it is somebody else's");
    }
    assert!(matches!(
        saboteur.hurt(Hurt::Kill).await,
        Err(SabotageError::CannotHurt { hurt: Hurt::Kill, .. })
    ));
    assert!(Hurt::NETWORK.into_iter().chain([Hurt::FlushScripts]).all(|hurt| saboteur.can(hurt)));
    saboteur.hurt(Hurt::Cut).await.unwrap();
    client.get().await.expect_err("it was cut");
    server.stop().await.unwrap();
}

fn is_not_replaced_when_named_in_vain(found: Found) {
    let reason = found.unwrap_err().to_string();
    assert!(reason.starts_with("no redis server: TENURE_TEST_REDIS_URL: "), "{reason}");
}

fn hides_its_password(found: Found) {
    // The server has none, and says so when it is told one.
    let error = found.unwrap_err();
    assert!(error.to_string().contains("authentication failed"), "{error}");
    assert!(!format!("{error} {error:?}").contains("sesame"), "{error:?}");
}

fn refuses_an_unknown_way(found: Found) {
    let reason = found.unwrap_err().to_string();
    assert_eq!(reason, "no redis server: TENURE_TEST_USE=podman: expected env, docker or local");
}

fn is_a_program_where_there_is_no_image(found: Found) {
    assert!(matches!(found.unwrap().way(), Way::Local { .. }));
}

fn says_why_there_is_none(found: Found) {
    let error = found.unwrap_err();
    let [url, docker, program] = error.reasons() else { panic!("{error}") };
    assert_eq!(url, "TENURE_TEST_REDIS_URL is not set");
    assert!(docker.starts_with("container of redis:7: "), "{docker}");
    assert_eq!(program, "no program redis-server on this machine");
}

async fn is_given_up_when_nobody_waits() {
    let starting = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.trim() == "tenure-start")
    };
    let mut found = Box::pin(Server::find(Kind::Redis));
    assert!(futures_util::poll!(&mut found).is_pending());
    // A new thread names itself.
    until(starting).await;
    drop(found);
    // It would wait five minutes for somebody.
    until(|| !starting()).await;
}

async fn until(wished: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG / 2;
    while !wished() {
        assert!(Instant::now() < deadline, "not in time");
        pause::look_again().await;
    }
}

async fn sweeps_what_the_dead_left() {
    let server = Server::start(Kind::Redis, Use::Docker).await.unwrap();
    let docker = docker_client_instance().await.unwrap();
    let ours = |owner: &String| owner.contains(&format!("/{}/", std::process::id()));
    let filters = [("label".to_owned(), vec!["tenure.owner".to_owned()])].into();
    let options = ListContainersOptionsBuilder::new().filters(&filters).build();
    let containers = docker.list_containers(Some(options)).await.unwrap();
    let owners = containers.into_iter().filter_map(|container| container.labels?.remove("tenure.owner"));
    let living = owners.into_iter().find(ours).expect("the server's own");
    // The first process of this system, had it started at another time.
    let mut parts = living.rsplitn(3, '/');
    let dead = format!("{}/1/0", parts.nth(2).unwrap());
    let mut left = Vec::new();
    for owner in [dead, living, "another/system/1/0".to_owned()] {
        let body = ContainerCreateBody {
            image: Some(std::env::var("TENURE_TEST_REDIS_IMAGE").unwrap_or("redis:7".into())),
            labels: Some([("tenure.owner".to_owned(), owner)].into()),
            ..Default::default()
        };
        left.push(docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id);
    }
    Server::start(Kind::Redis, Use::Docker).await.unwrap().stop().await.unwrap();
    let mut there = Vec::new();
    for id in &left {
        there.push(docker.inspect_container(id, None::<InspectContainerOptions>).await.is_ok());
    }
    for (id, there) in left.iter().zip(&there) {
        if *there {
            docker.remove_container(id, None).await.unwrap();
        }
    }
    server.stop().await.unwrap();
    assert_eq!(there, [false, true, true], "only the dead process's");
}

fn sweeps_the_homes_of_the_dead() {
    let temporary = tempfile::tempdir().unwrap();
    let home = |name: &str, owner: &str| {
        let home = temporary.path().join(name);
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("owner"), owner).unwrap();
        home
    };
    let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    // The first process of this system, had it started at another time.
    let dead = format!("{}/{}/1/0", here.trim(), namespace.display());
    let left = home("tenure-left", &dead);
    let kept = [home("tenure-elsewhere", "another/system/1/0"), home("other-left", &dead)];
    let mut process = Command::new("sleep").arg("600").current_dir(&left).spawn().unwrap();

    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env(CHILD, "find is_a_program_where_there_is_no_image").env("TMPDIR", temporary.path());
    child.env("TENURE_TEST_USE", "local").env_remove("TENURE_TEST_REDIS_URL");
    assert!(child.status().unwrap().success());
    assert!(!left.exists() && process.try_wait().unwrap().is_some(), "swept, with what lived in it");
    assert!(kept.iter().all(|home| home.exists()));
}
