//! A store's answers are those of [`Record`](tenure_core::record::Record): random histories of two clients.

use crate::{Check, Need, Stage, case::cases, oracle::play};
use std::num::NonZeroU32;
use tenure_core::Mode;

cases!("oracle": exclusive_claims_agree_with_record, readers_agree_with_record, permits_agree_with_record);

/// Two clients send random requests with exclusive claims. The answers are possible ones of `Record`.
async fn exclusive_claims_agree_with_record(stage: &Stage) -> Check {
    play(stage, &[Mode::Exclusive]).await
}

/// Two clients send random requests with readers and writers. The answers are possible ones of `Record`.
async fn readers_agree_with_record(stage: &Stage) -> Check {
    stage.needs(Need::Readers)?;
    play(stage, &[Mode::Exclusive, Mode::Shared, Mode::Shared]).await
}

/// Two clients send random requests with permits. The answers are possible ones of `Record`.
async fn permits_agree_with_record(stage: &Stage) -> Check {
    const MODES: &[Mode] = &[permits(1, 3), permits(2, 3), permits(1, 3), permits(1, 2), Mode::Exclusive];
    stage.needs(Need::Permits)?;
    play(stage, MODES).await
}

const fn permits(take: u32, of: u32) -> Mode {
    let (Some(take), Some(of)) = (NonZeroU32::new(take), NonZeroU32::new(of)) else {
        panic!("permits are counted from one")
    };
    Mode::Permit { take, of }
}
