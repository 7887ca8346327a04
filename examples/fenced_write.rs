//! Fencing: the resource refuses a holder who was overtaken and does not know it yet.
//!
//! `cargo run --example fenced_write`, or with `--features sqlite` and `-- sqlite:locks.db`.

use std::{env, time::Duration};
use tenure::{Error, Token};

/// A document that remembers the greatest token it was shown. In SQL it is a column and a condition:
/// `UPDATE documents SET text = $1, fence = $2 WHERE id = $3 AND fence <= $2`.
#[derive(Default)]
struct Document {
    text: String,
    fence: Option<Token>,
}

impl Document {
    fn write(&mut self, token: Token, text: &str) -> Result<(), String> {
        if self.fence > Some(token) {
            return Err(format!("token {token} is refused: a later holder has been here"));
        }
        self.fence = Some(token);
        text.clone_into(&mut self.text);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;
    let mut document = Document::default();

    // The first holder's lease runs out while it is busy: here because nothing renews it.
    let slow = locks.lock("document/7").lease(Duration::from_millis(200)).renew(false).acquire().await?;
    let late = slow.token();
    println!("lost: {}", slow.lost().await);
    drop(slow);

    let next = locks.lock("document/7").acquire().await?;
    println!("token {}: {:?}", next.token(), document.write(next.token(), "the second holder's"));
    println!("token {late}: {:?}", document.write(late, "the first holder's, too late"));
    assert_eq!(document.text, "the second holder's");
    next.release().await?;
    locks.close().await;
    Ok(())
}
