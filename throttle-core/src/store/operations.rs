//! The macro that turns the lists of operations into the backend traits, their sealed faces, the guard that is the only
//! way from one to the other, the erased twins, and the list of names.

/// Takes the operations of a store once, and those of its locks. Each line reads like the method it becomes:
///
/// ```text
/// /// Docs of a trait, then of each operation.
/// trait Backend => Store, Guarded, AnyStore {
///     Name: async fn name(&self, argument: Type) -> Result<Answer>;
///     Other: async fn other(&self, argument: Type) -> Results<Answer> = default_of(self, argument);
/// }
/// at once {
///     fn name_now(&self, argument: Type) -> Answer;
/// }
/// /// Docs.
/// trait More: Backend => MoreStore, AnyMoreStore {
///     Third: async fn third(&self, argument: Type) -> Result<Answer>;
/// }
/// ```
///
/// `Result` and `Results` get the error of the place: the backend's own in the backend trait, the
/// [`StoreUnavailableError`](super::StoreUnavailableError) everywhere else. What is asked at once gets an `Option`,
/// `None` from backends that do not write it. An operation is one line here; whoever forgets it fails to build.
macro_rules! store_operations {
    // A method of the backend trait that authors must write, and one that has a default.
    (@method $(#[$doc:meta])* $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $Result:ident<$answer:ty>) => {
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// A member of the backend's family.
        fn $name(&$self $(, $arg: $ty)*) -> impl Future<Output = $Result<$answer, Self::BaseError>> + Send;
    };
    (@method $(#[$doc:meta])* $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $Result:ident<$answer:ty>
        = $default:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// A member of the backend's family.
        fn $name(&$self $(, $arg: $ty)*) -> impl Future<Output = $Result<$answer, Self::BaseError>> + Send {
            $default
        }
    };

    (
        $(#[$docs:meta])*
        trait $Backend:ident => $Store:ident, $Guarded:ident, $AnyStore:ident {
            $(
                $(#[$doc:meta])*
                $Operation:ident: async fn $name:ident(&$self:ident $(, $arg:ident: $ty:ty)*)
                    -> $Result:ident<$answer:ty> $(= $default:expr)?;
            )+
        }
        at once {
            $(
                $(#[$now_doc:meta])*
                fn $now:ident(&$me:ident $(, $now_arg:ident: $now_ty:ty)*) -> $now_answer:ty;
            )+
        }
        $(#[$lock_docs:meta])*
        trait $LockBackend:ident: $Base:ident => $LockStore:ident, $AnyLockStore:ident {
            $(
                $(#[$lock_doc:meta])*
                $LockOperation:ident: async fn $lock:ident(&$lock_self:ident $(, $with:ident: $kind:ty)*)
                    -> $LockResult:ident<$got:ty>;
            )+
        }
    ) => {
        $(#[$docs])*
        pub trait $Backend: std::fmt::Debug + Send + Sync + 'static {
            /// Every way in which this backend can fail.
            type BaseError: $crate::store::BaseErrorSet;

            /// The name of this kind of store in errors and metrics, such as `redis`.
            fn name(&self) -> &'static str;

            $(
                store_operations! {
                    @method $(#[$doc])* $name($self $(, $arg: $ty)*) -> $Result<$answer> $(= $default)?
                }
            )+
            $(
                $(#[$now_doc])*
                #[inline]
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                    let _ = ($($now_arg),*);
                    None
                }
            )+
        }

        #[deny(clippy::missing_trait_methods)]
        impl<B: $Backend> $Backend for std::sync::Arc<B> {
            type BaseError = B::BaseError;

            fn name(&self) -> &'static str {
                (**self).name()
            }

            $(
                fn $name(&$self $(, $arg: $ty)*)
                    -> impl Future<Output = $Result<$answer, Self::BaseError>> + Send {
                    (**$self).$name($($arg),*)
                }
            )+
            $(
                #[inline]
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                    (**$me).$now($($now_arg),*)
                }
            )+
        }

        $(#[$lock_docs])*
        pub trait $LockBackend: $Base {
            $(
                store_operations! {
                    @method $(#[$lock_doc])* $lock($lock_self $(, $with: $kind)*) -> $LockResult<$got>
                }
            )+
        }

        #[deny(clippy::missing_trait_methods)]
        impl<B: $LockBackend> $LockBackend for std::sync::Arc<B> {
            $(
                fn $lock(&$lock_self $(, $with: $kind)*)
                    -> impl Future<Output = $LockResult<$got, Self::BaseError>> + Send {
                    (**$lock_self).$lock($($with),*)
                }
            )+
        }

        /// The operations by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            /// Reaching the store in the first place, before there is a backend.
            Connect,
            $($(#[$doc])* $Operation,)+
            $($(#[$lock_doc])* $LockOperation,)+
        }

        impl Operation {
            /// Every operation of a backend; [`Operation::Connect`] comes before there is one.
            pub const ALL: &[Self] = &[$(Self::$Operation,)+ $(Self::$LockOperation,)+];

            /// Those of them that only backends with locks have.
            pub const LOCKS: &[Self] = &[$(Self::$LockOperation),+];

            /// Its name in errors and metrics, such as `decide_many`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Connect => "connect",
                    $(Self::$Operation => stringify!($name),)+
                    $(Self::$LockOperation => stringify!($lock),)+
                }
            }
        }

        impl std::fmt::Display for Operation {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        /// A store as users call it. Sealed: every store is a [`StoreBackend`] behind [`Guarded`], so every failure is
        /// a [`StoreUnavailableError`](super::StoreUnavailableError).
        pub trait $Store: sealed::Sealed + std::fmt::Debug + Send + Sync + 'static {
            /// The name of the kind of store.
            fn backend_name(&self) -> &'static str;

            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// [`StoreUnavailableError`](super::StoreUnavailableError), whatever the backend failed with.
                fn $name(&$self $(, $arg: $ty)*)
                    -> impl Future<Output = $Result<$answer, StoreUnavailableError>> + Send;
            )+
            $(
                $(#[$now_doc])*
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer>;
            )+
        }

        /// A store with locks, as users call it. Sealed as [`Store`] is.
        pub trait $LockStore: $Store {
            $(
                $(#[$lock_doc])*
                ///
                /// # Errors
                ///
                /// [`StoreUnavailableError`](super::StoreUnavailableError), whatever the backend failed with.
                fn $lock(&$lock_self $(, $with: $kind)*)
                    -> impl Future<Output = $LockResult<$got, StoreUnavailableError>> + Send;
            )+
        }

        /// A backend that users may call: adds the backend's name and the operation to each error, and nothing else.
        #[derive(Debug, Clone, Default)]
        pub struct $Guarded<B>(B);

        impl<B: $Backend> $Guarded<B> {
            /// Guards `backend`.
            pub const fn new(backend: B) -> Self {
                Self(backend)
            }

            /// The backend itself, with its own errors.
            pub const fn get_ref(&self) -> &B {
                &self.0
            }

            /// The backend itself, with its own errors.
            pub fn into_inner(self) -> B {
                self.0
            }
        }

        impl<B: $Backend> From<B> for $Guarded<B> {
            fn from(backend: B) -> Self {
                Self(backend)
            }
        }

        impl<B: $Backend> $Store for $Guarded<B> {
            fn backend_name(&self) -> &'static str {
                self.0.name()
            }

            $(
                #[inline(always)]
                fn $name(&$self $(, $arg: $ty)*)
                    -> impl Future<Output = $Result<$answer, StoreUnavailableError>> + Send {
                    $crate::store::error::Guard::new($self.0.$name($($arg),*), &$self.0, Operation::$Operation)
                }
            )+
            $(
                #[inline(always)]
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                    $me.0.$now($($now_arg),*)
                }
            )+
        }

        impl<B: $LockBackend> $LockStore for $Guarded<B> {
            $(
                #[inline(always)]
                fn $lock(&$lock_self $(, $with: $kind)*)
                    -> impl Future<Output = $LockResult<$got, StoreUnavailableError>> + Send {
                    let call = $lock_self.0.$lock($($with),*);
                    $crate::store::error::Guard::new(call, &$lock_self.0, Operation::$LockOperation)
                }
            )+
        }

        /// A store whose kind is chosen at run time. Cheap to clone; each call boxes one future.
        #[derive(Debug, Clone)]
        pub struct $AnyStore(std::sync::Arc<dyn erased::Erased>);

        impl $AnyStore {
            /// Forgets which kind of store it is.
            pub fn new(store: impl $Store) -> Self {
                Self(std::sync::Arc::new(store))
            }
        }

        impl<B: $Backend> From<B> for $AnyStore {
            fn from(backend: B) -> Self {
                Self::new($Guarded::new(backend))
            }
        }

        impl $Store for $AnyStore {
            fn backend_name(&self) -> &'static str {
                self.0.backend_name()
            }

            $(
                async fn $name(&$self $(, $arg: $ty)*) -> $Result<$answer, StoreUnavailableError> {
                    $self.0.$name($($arg),*).await
                }
            )+
            $(
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                    $me.0.$now($($now_arg),*)
                }
            )+
        }

        /// A store with locks whose kind is chosen at run time. Cheap to clone; each call boxes one future.
        #[derive(Debug, Clone)]
        pub struct $AnyLockStore(std::sync::Arc<dyn erased::ErasedLocks>);

        impl $AnyLockStore {
            /// Forgets which kind of store it is.
            pub fn new(store: impl $LockStore) -> Self {
                Self(std::sync::Arc::new(store))
            }
        }

        impl<B: $LockBackend> From<B> for $AnyLockStore {
            fn from(backend: B) -> Self {
                Self::new($Guarded::new(backend))
            }
        }

        /// The same store, of which nobody asks a lock.
        impl From<$AnyLockStore> for $AnyStore {
            fn from(store: $AnyLockStore) -> Self {
                Self(store.0)
            }
        }

        impl $Store for $AnyLockStore {
            fn backend_name(&self) -> &'static str {
                self.0.backend_name()
            }

            $(
                async fn $name(&$self $(, $arg: $ty)*) -> $Result<$answer, StoreUnavailableError> {
                    $self.0.$name($($arg),*).await
                }
            )+
            $(
                fn $now(&$me $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                    $me.0.$now($($now_arg),*)
                }
            )+
        }

        impl $LockStore for $AnyLockStore {
            $(
                async fn $lock(&$lock_self $(, $with: $kind)*) -> $LockResult<$got, StoreUnavailableError> {
                    $lock_self.0.$lock($($with),*).await
                }
            )+
        }

        mod erased {
            use super::*;
            /// The only place where a future is boxed.
            #[async_trait::async_trait]
            pub(super) trait Erased: std::fmt::Debug + Send + Sync {
                fn backend_name(&self) -> &'static str;
                $(
                    async fn $name(&self $(, $arg: $ty)*) -> $Result<$answer, StoreUnavailableError>;
                )+
                $(fn $now(&self $(, $now_arg: $now_ty)*) -> Option<$now_answer>;)+
            }

            #[async_trait::async_trait]
            pub(super) trait ErasedLocks: Erased {
                $(
                    async fn $lock(&self $(, $with: $kind)*) -> $LockResult<$got, StoreUnavailableError>;
                )+
            }

            #[async_trait::async_trait]
            impl<S: $LockStore> ErasedLocks for S {
                $(
                    async fn $lock(&self $(, $with: $kind)*) -> $LockResult<$got, StoreUnavailableError> {
                        $LockStore::$lock(self $(, $with)*).await
                    }
                )+
            }

            #[async_trait::async_trait]
            impl<S: $Store> Erased for S {
                fn backend_name(&self) -> &'static str {
                    $Store::backend_name(self)
                }
                $(
                    async fn $name(&self $(, $arg: $ty)*) -> $Result<$answer, StoreUnavailableError> {
                        $Store::$name(self $(, $arg)*).await
                    }
                )+
                $(
                    fn $now(&self $(, $now_arg: $now_ty)*) -> Option<$now_answer> {
                        $Store::$now(self $(, $now_arg)*)
                    }
                )+
            }
        }

        mod sealed {
            #[expect(unnameable_types, reason = "nobody else may implement a store")]
            pub trait Sealed {}
            impl<B: super::$Backend> Sealed for super::$Guarded<B> {}
            impl Sealed for super::$AnyStore {}
            impl Sealed for super::$AnyLockStore {}
        }
    };
}

pub(super) use store_operations;
