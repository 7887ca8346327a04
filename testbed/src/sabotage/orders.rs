//! How one server is hurt, and a hurt undone.

use crate::admin::Order;
use crate::node::{Node, State};
use std::io;
use tenure_conformance::proxy::Flow;
use tenure_conformance::saboteur::{Direction, Hurt, Injection, Saboteur};

/// Does it, alone with the server's state.
pub(super) async fn carry_out(order: Order, node: &Node, state: &mut State) -> io::Result<()> {
    match order {
        Order::Inject(injection) => inject(injection, node, state).await,
        Order::Undo(hurt) => undo(hurt, node, state).await,
        Order::Restart { empty } => restart(node, state, empty).await,
        Order::Heal => heal(node, state).await,
    }
}

async fn inject(injection: Injection, node: &Node, state: &mut State) -> io::Result<()> {
    match (injection.hurt, &node.proxy) {
        (Hurt::Freeze, _) => freeze(state).await,
        (Hurt::Kill, _) => kill(node, state).await,
        (Hurt::ClockAhead | Hurt::ClockBack, _) => state.engine()?.set_clock(injection),
        (hurt, _) if node.is_held(hurt) => node.take(state, hurt).await,
        (Hurt::LoseEnds, Some(proxy)) => {
            proxy.set(Direction::Requests, Flow::StopAt(node.ends()));
            Ok(())
        }
        (hurt, Some(proxy)) if Hurt::NETWORK.contains(&hurt) => {
            Saboteur::inject(proxy, injection).await.map_err(io::Error::other)
        }
        (hurt, _) => {
            if hurt.lasts() {
                state.hurts.insert(hurt);
            }
            node.inject(state, injection).await
        }
    }
}

async fn freeze(state: &mut State) -> io::Result<()> {
    if !state.hurts.contains(&Hurt::Freeze) && !state.hurts.contains(&Hurt::Kill) {
        state.engine()?.freeze().await?;
        state.hurts.insert(Hurt::Freeze);
    }
    Ok(())
}

async fn kill(node: &Node, state: &mut State) -> io::Result<()> {
    // First the port, so that nobody is accepted on the dead server's behalf.
    if let Some(proxy) = &node.proxy {
        proxy.refuse().await;
    }
    state.engine_mut()?.kill().await?;
    state.hurts.insert(Hurt::Kill);
    state.hurts.remove(&Hurt::Freeze);
    if let Some(proxy) = &node.proxy {
        proxy.cut().await;
    }
    Ok(())
}

/// Starts the server again, with or without its data, and accepts its clients when it serves.
async fn restart(node: &Node, state: &mut State, empty: bool) -> io::Result<()> {
    // From here on until it serves, `heal` has it to start again.
    state.hurts.insert(Hurt::Kill);
    // What was held is the dead server's.
    state.forget_held();
    kill(node, state).await?;
    let engine = state.engine_mut()?;
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

/// Undoes a hurt, if it was done.
async fn undo(hurt: Hurt, node: &Node, state: &mut State) -> io::Result<()> {
    if hurt == Hurt::LoseEnds || Hurt::NETWORK.contains(&hurt) {
        return match &node.proxy {
            // A killed server goes on refusing.
            Some(proxy) if !state.hurts.contains(&Hurt::Kill) => proxy.mend().await,
            _ => Ok(()),
        };
    }
    node.free(state, hurt).await?;
    if state.hurts.contains(&hurt) {
        match hurt {
            Hurt::Kill => restart(node, state, false).await?,
            Hurt::Freeze => state.engine()?.thaw().await?,
            hurt => node.undo(state, hurt).await?,
        }
        state.hurts.remove(&hurt);
    }
    Ok(())
}

async fn heal(node: &Node, state: &mut State) -> io::Result<()> {
    for hurt in [
        Hurt::Kill,
        Hurt::Freeze,
        Hurt::FillDisk,
        Hurt::LockRows,
        Hurt::LockTables,
        Hurt::FillConnections,
        Hurt::FillMemory,
        Hurt::PauseWrites,
        Hurt::ReadOnly,
    ] {
        undo(hurt, node, state).await?;
    }
    if let Some(proxy) = &node.proxy {
        proxy.mend().await?;
    }
    node.ready(state).await
}
