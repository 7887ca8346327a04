//! The topics `tenure help urls` and `tenure help exit-codes`. Each term stands above its explanation, so that both fit
//! into a terminal of any width.

use std::fmt::Write;
use tenure::urls::{self, Parameter, Scheme};

pub(crate) const EXIT_CODES: &str = "\
Exit codes

  the command's
      run, elect: the command ended by itself; 128 + n if signal n ended it
  0
      other commands: success
  1
      show, release: the lock is free; latch show: no such latch; conformance: a case failed
  64
      bad input: a name, a duration, a URL, an option; release: the lock is held, and --force is missing
  69
      the store is unavailable, failed, or lacks this feature; or clients disagree on --permits or --parties
  74
      the operating system refused a new process, a write, a port or more open files
  75
      the lock was not free in time, or the latch did not open. --exit-code N replaces this code
  79
      run: the lock was lost or --max-hold passed, so `tenure` ended the command; run, elect: the command ended by \
      itself, but the lock had been lost before, so another holder may have worked at the same time
  126, 127
      run, elect: the command cannot be run, or was not found
  128 + n
      run, elect, wait, latch wait: signal n ended the wait; bench: signal n ended the measurement

Durations are written like 90s, 5m or 1h30m. Names have 1 to 200 bytes and no control characters.
";

/// The stores, their URLs and parameters.
pub(crate) fn urls() -> String {
    // Writing to a String cannot fail.
    let mut text = String::from(
        "Stores\n\nThe store is the URL in --store, in the file of --store-file, in $TENURE_STORE, or in the file \
         $TENURE_STORE_FILE. Otherwise it is this user's SQLite file on this machine: \
         $XDG_STATE_HOME/tenure/locks.db or ~/.local/state/tenure/locks.db.\n\n",
    );
    let schemes = urls::schemes();
    for scheme in &schemes {
        let _ = writeln!(text, "  {}\n      {}", scheme.form, scheme.about);
    }
    text += "\nIn passwords, write %25 for %, %40 for @, %23 for #, %2F for / and %3F for ?.\n\nParameters follow a \
             question mark; in a shell, quote the URL: 'postgres://db/shop?strategy=row-lock&lease=10s'\n";
    let parameters = urls::parameters();
    let every_store = parameters.iter().map(|parameter| parameter.stores.len()).max();
    let (common, own): (Vec<_>, Vec<_>) =
        parameters.iter().partition(|parameter| Some(parameter.stores.len()) == every_store);
    section(&mut text, "every store", common);
    for of_store in schemes.chunk_by(|one, next| one.store == next.store) {
        let names: Vec<&str> = of_store.iter().map(|Scheme { name, .. }| *name).collect();
        let own = own.iter().filter(|parameter| parameter.stores.contains(&of_store[0].store));
        section(&mut text, &names.join(", "), own.copied());
    }
    text
}

fn section<'a>(text: &mut String, of: &str, parameters: impl IntoIterator<Item = &'a Parameter>) {
    let _ = writeln!(text, "\nParameters of {of}\n");
    for Parameter { name, takes, default, about, .. } in parameters {
        let default = if *default == "required" { "required" } else { &format!("default: {default}") };
        let _ = writeln!(text, "  {name} [{takes}; {default}]\n      {about}");
    }
}
