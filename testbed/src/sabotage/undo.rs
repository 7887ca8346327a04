//! How a hurt is undone.

use crate::admin::Order;
use crate::node::{Node, State};
use std::io;
use tenure_conformance::saboteur::Hurt;

pub(super) async fn thaw(state: &mut State) -> io::Result<()> {
    if state.hurts.contains(&Hurt::Freeze) {
        state.engine()?.thaw().await?;
        state.hurts.remove(&Hurt::Freeze);
    }
    Ok(())
}

pub(super) async fn resume_writes(node: &Node, state: &mut State) -> io::Result<()> {
    if state.hurts.contains(&Hurt::PauseWrites) {
        node.order(state, Order::ResumeWrites).await?;
        state.hurts.remove(&Hurt::PauseWrites);
    }
    Ok(())
}

pub(super) async fn make_writable(node: &Node, state: &mut State) -> io::Result<()> {
    if state.hurts.contains(&Hurt::ReadOnly) {
        node.order(state, Order::MakeWritable).await?;
        state.hurts.remove(&Hurt::ReadOnly);
    }
    Ok(())
}

pub(super) async fn free_memory(node: &Node, state: &mut State) -> io::Result<()> {
    if state.hurts.contains(&Hurt::FillMemory) {
        node.order(state, Order::FreeMemory).await?;
        state.hurts.remove(&Hurt::FillMemory);
    }
    Ok(())
}

/// Starts the server again, with or without its data, and accepts its clients when it serves.
pub(super) async fn restart(node: &Node, state: &mut State, empty: bool) -> io::Result<()> {
    if let Some(proxy) = &node.proxy {
        proxy.refuse().await;
    }
    // From here on until it serves, `heal` has it to start again.
    state.hurts.insert(Hurt::Kill);
    state.hurts.remove(&Hurt::Freeze);
    // What was held is the dead server's.
    state.forget_held();
    let engine = state.engine_mut()?;
    engine.kill().await?;
    if let Some(proxy) = &node.proxy {
        proxy.cut().await;
    }
    if empty {
        engine.restart_empty().await?;
    } else {
        engine.restart().await?;
    }
    let address = engine.address();
    node.follow(address);
    node.ready(state).await?;
    state.hurts.remove(&Hurt::Kill);
    match &node.proxy {
        Some(proxy) => proxy.accept().await,
        None => Ok(()),
    }
}
