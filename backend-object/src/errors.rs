//! The meaning of the client's errors.

use object_store::Error as Refusal;
use std::error::Error;
use tenure_core::StoreError;

/// Whether there is no such object, in a bucket that is there.
pub(crate) fn is_missing(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NotFound { .. }) && !innermost(refusal).to_string().contains("NoSuchBucket")
}

/// A store that is not reached, or has too much to do, can answer later. Other errors say what a person has to mend.
pub(crate) fn meaning(refusal: &Refusal) -> StoreError {
    let said = said(refusal);
    let status = said.get(..3).and_then(|status| status.parse::<u16>().ok());
    let has = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    let mend = if refusal.to_string().contains(METADATA) {
        // A role that the machine had may be back soon.
        return StoreError::unavailable(format!("the machine's metadata service: {said}; {NO_CREDENTIALS}"));
    } else if has(&["RequestTimeout:"]) {
        return StoreError::unavailable(said);
    } else if has(&["NoSuchBucket"]) {
        "create the bucket, or name another"
    } else if has(&["RequestTimeTooSkewed"]) {
        "set this machine's clock"
    } else if has(&["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"]) {
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
    } else if has(&["PermanentRedirect:", "AuthorizationHeaderMalformed:"])
        || status.is_none() && has(&["redirect"])
    {
        "check region= and endpoint="
    } else if matches!(refusal, Refusal::PermissionDenied { .. } | Refusal::Unauthenticated { .. }) {
        "allow s3:GetObject and s3:PutObject on the objects, and s3:ListBucket on the bucket"
    } else if status.is_none() && has(&["certificate"]) {
        "check the endpoint's certificate"
    } else {
        let is_temporary = match status {
            Some(status) => [408, 429].contains(&status) || status >= 500 && status != 501,
            None => matches!(refusal, Refusal::Generic { .. } | Refusal::JoinError { .. }),
        };
        return if is_temporary { StoreError::unavailable(said) } else { StoreError::failed(said) };
    };
    StoreError::failed(format!("{said}; {mend}"))
}

/// The hint where there are none. A client that begins takes it for the reason.
pub(crate) const NO_CREDENTIALS: &str =
    "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role";

/// The address of a machine's metadata, which have its role's credentials.
const METADATA: &str = "//169.254.169.254/";

fn innermost(refusal: &Refusal) -> &(dyn Error + 'static) {
    let mut cause: &(dyn Error + 'static) = refusal;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// The innermost cause: `403 Forbidden: AccessDenied: Access Denied`, `Connection refused (os error 111)`.
fn said(refusal: &Refusal) -> String {
    let innermost = innermost(refusal).to_string();
    // The client's words around the status, which it does not show otherwise.
    let Some((_, answer)) = innermost.split_once("status code: ") else { return innermost };
    let (status, body) = answer.split_once(": ").unwrap_or((answer, ""));
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split('<').next()
    };
    let parts = [Some(status), element("Code"), element("Message")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}
