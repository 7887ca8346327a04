//! Stores that wrap another one and forward requests to it.

use crate::{async_trait, store::Backend};
use std::sync::Arc;

/// Inside an `impl Backend`, forwards every method to another backend, except those that are named.
///
/// Write the named ones by hand; a method that is named but not written gets the trait's default. Methods added to the
/// trait later are forwarded too, so a wrapper cannot forget one.
///
/// Give the other backend as a place expression, such as `self.0` or `**self`. It is borrowed.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
/// use tenure_core::{Backend, Grant, Renewal, StoreError, async_trait, forward_backend};
///
/// struct CountsRenewals {
///     store: Arc<dyn Backend>,
///     renewals: AtomicUsize,
/// }
///
/// #[async_trait]
/// impl Backend for CountsRenewals {
///     forward_backend!(self => self.store, except renew);
///
///     async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
///         self.renewals.fetch_add(1, Ordering::Relaxed);
///         self.store.renew(grants).await
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_backend {
    ($self:ident => $to:expr $(, except $($own:ident),+)? $(,)?) => {
        $crate::__forward_backend! { @all [$($($own)+)?] $self $to;
            fn store() -> &str;
            fn capabilities() -> $crate::Capabilities;
            ask try_acquire<'a>(claim: &'a $crate::Claim) -> $crate::Attempt;
            ask try_acquire_all<'a>(claims: &'a [$crate::Claim]) -> $crate::AttemptAll;
            ask release<'a>(grant: &'a $crate::Grant) -> $crate::Release;
            ask renew<'a>(grants: &'a [$crate::Grant]) -> ::std::vec::Vec<$crate::Renewal>;
            ask withdraw<'a>(claim: &'a $crate::Claim) -> ();
            ask wait_for_release<'a>(claim: &'a $crate::Claim, at_most: ::std::time::Duration) -> ();
            ask acquire<'a>(claim: &'a $crate::Claim) -> $crate::Grant;
            ask convert<'a>(grant: &'a $crate::Grant, to: $crate::Mode) -> $crate::Conversion;
            ask latch<'a, 'b>(name: &'a $crate::Name, step: &'b $crate::LatchStep) -> $crate::LatchState;
            ask holders<'a>(name: &'a $crate::Name) -> ::std::vec::Vec<$crate::Holder>;
            ask list<'a>(prefix: &'a str) -> ::std::vec::Vec<$crate::Holder>;
            ask waiting<'a>(name: &'a $crate::Name) -> ::std::vec::Vec<$crate::Waiter>;
            ask force_release<'a>(name: &'a $crate::Name) -> ::std::vec::Vec<$crate::Holder>;
            fn shard(name: &$crate::Name) -> u64;
            fn background() -> $crate::Background;
            async close<>() -> ();
        }
    };
}

/// The methods of [`forward_backend`], except those in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __forward_backend {
    (@all $own:tt $self:ident $to:expr; $(
        $kind:tt $name:ident $(<$($life:lifetime),*>)? ($($arg:ident: $type:ty),*) -> $answer:ty;
    )*) => {
        $($crate::__forward_backend! {
            @unless $own $name {@$kind $self $to; $name $(<$($life),*>)? ($($arg: $type),*) -> $answer}
        })*
    };

    (@fn $self:ident $to:expr; $name:ident ($($arg:ident: $type:ty),*) -> $answer:ty) => {
        fn $name(&$self, $($arg: $type),*) -> $answer {
            $crate::Backend::$name(&$to, $($arg),*)
        }
    };
    (@ask $self:ident $to:expr; $name:ident <$($life:lifetime),*> $args:tt -> $answer:ty) => {
        $crate::__forward_backend! {
            @async $self $to; $name <$($life),*> $args -> ::std::result::Result<$answer, $crate::StoreError>
        }
    };
    // Written as `async_trait` expands an `async fn`: it does not expand inside macros, and this way there is no second
    // box.
    (@async $self:ident $to:expr; $name:ident <$($life:lifetime),*> ($($arg:ident: $type:ty),*) -> $answer:ty) => {
        fn $name<'this, $($life,)* 'future>(
            &'this $self,
            $($arg: $type),*
        ) -> ::std::pin::Pin<::std::boxed::Box<dyn ::std::future::Future<Output = $answer> + Send + 'future>>
        where
            'this: 'future,
            $($life: 'future,)*
            Self: 'future,
        {
            $crate::Backend::$name(&$to, $($arg),*)
        }
    };

    // A macro cannot compare two identifiers, but it can match one that is written in it.
    (@unless [store $($_:ident)*] store $method:tt) => {};
    (@unless [capabilities $($_:ident)*] capabilities $method:tt) => {};
    (@unless [try_acquire $($_:ident)*] try_acquire $method:tt) => {};
    (@unless [try_acquire_all $($_:ident)*] try_acquire_all $method:tt) => {};
    (@unless [release $($_:ident)*] release $method:tt) => {};
    (@unless [renew $($_:ident)*] renew $method:tt) => {};
    (@unless [withdraw $($_:ident)*] withdraw $method:tt) => {};
    (@unless [wait_for_release $($_:ident)*] wait_for_release $method:tt) => {};
    (@unless [acquire $($_:ident)*] acquire $method:tt) => {};
    (@unless [convert $($_:ident)*] convert $method:tt) => {};
    (@unless [latch $($_:ident)*] latch $method:tt) => {};
    (@unless [holders $($_:ident)*] holders $method:tt) => {};
    (@unless [list $($_:ident)*] list $method:tt) => {};
    (@unless [waiting $($_:ident)*] waiting $method:tt) => {};
    (@unless [force_release $($_:ident)*] force_release $method:tt) => {};
    (@unless [shard $($_:ident)*] shard $method:tt) => {};
    (@unless [background $($_:ident)*] background $method:tt) => {};
    (@unless [close $($_:ident)*] close $method:tt) => {};
    (@unless [$other:ident $($rest:ident)*] $name:ident $method:tt) => {
        $crate::__forward_backend! { @unless [$($rest)*] $name $method }
    };
    (@unless [] $name:ident {$($method:tt)*}) => {
        $crate::__forward_backend! { $($method)* }
    };
}

// Fails to compile if a method of the trait is missing above.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    forward_backend!(self => **self);
}
