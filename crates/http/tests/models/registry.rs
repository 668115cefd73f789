//! Policies that are built when the first request asks for them.

use std::sync::Arc;

use http::Method;
use loom::thread;

use tollgate::{Limiter, Quota};
use tollgate_testkit::models::in_every_order;

use super::registry::Registry;
use site::Mounted;

pub(super) mod site {
    use std::sync::atomic::AtomicUsize;

    use http::Method;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Owner;

    pub(crate) trait Site: Sync {
        fn owner(&self) -> Owner;
        fn family(&self, _method: &Method) -> &'static str {
            "get"
        }
        fn times_built(&self) -> &AtomicUsize;
    }

    #[derive(Default)]
    pub(crate) struct Mounted(pub(crate) AtomicUsize);

    impl Site for Mounted {
        fn owner(&self) -> Owner {
            Owner
        }

        fn times_built(&self) -> &AtomicUsize {
            &self.0
        }
    }
}

pub(super) mod claim {
    #[derive(Clone, Debug)]
    pub(crate) struct Claim;
}

pub(super) mod misuse {
    use super::site::Site;

    #[derive(Debug)]
    pub(crate) struct Misuse;

    impl Misuse {
        pub(crate) fn new(_site: &dyn Site, _route: &str, what: Self) -> Self {
            what
        }

        pub(crate) fn log(self, _site: &dyn Site) -> Self {
            self
        }
    }
}

pub(super) mod build {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use tollgate::{Limiter, Policy};

    use super::claim::Claim;
    use super::misuse::Misuse;
    use super::site::Site;

    pub(crate) struct Build<'a>(&'a dyn Site, &'a str);

    type Policies = (Arc<[Arc<Policy>]>, Vec<(String, Claim)>);

    impl<'a> Build<'a> {
        pub(crate) fn new(
            _limiter: &Limiter,
            _known: &HashMap<String, Claim>,
            site: &'a dyn Site,
            _method: &str,
            route: &'a str,
        ) -> Self {
            Self(site, route)
        }

        pub(crate) fn policies(&self) -> Result<Policies, Misuse> {
            self.0.times_built().fetch_add(1, Ordering::SeqCst);
            // Between what is known and what will be, any thread may come.
            loom::thread::yield_now();
            Ok((Arc::from([]), vec![(self.1.to_owned(), Claim)]))
        }
    }
}

#[test]
fn what_a_route_is_charged_under_is_built_once_whoever_asks_at_the_same_time() {
    let limiter = Limiter::from(Quota::per_second(1));
    in_every_order(move || {
        let (registry, site) = (Arc::new(Registry::default()), Arc::new(Mounted::default()));
        let ask = |route: &'static str| {
            let (registry, site) = (Arc::clone(&registry), Arc::clone(&site));
            let limiter = limiter.clone();
            move || {
                let built = registry.policies(&limiter, &*site, &Method::GET, route);
                built.unwrap()
            }
        };

        let first = thread::spawn(ask("/a"));
        let other = thread::spawn(ask("/b"));
        let again = ask("/a")();
        let first = first.join().unwrap();
        other.join().unwrap();

        assert!(Arc::ptr_eq(&first, &again));
        drop([ask("/a")(), ask("/b")()]);
        assert_eq!(site.0.load(std::sync::atomic::Ordering::SeqCst), 2);
    });
}
