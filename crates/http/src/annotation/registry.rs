//! The policies that a limiter has because of annotations and routes.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use http::Method;
use tollgate_limiter::{Limiter, Policy};

use super::build::Build;
use super::claim::Claim;
use super::misuse::Misuse;
use super::site::{Owner, Site};
use crate::sync::{ArcSwap, Mutex};

/// The policies that were built so far. Their number is bounded by the handlers of the program and the routes where they are
/// mounted.
#[derive(Debug, Default)]
pub(super) struct Registry {
    known: ArcSwap<Catalog>,
    /// Held by the thread that makes the next `known`.
    building: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Catalog {
    /// The generation of the limiter's policies beside which these were built. Replaced ones are forgotten.
    generation: u64,
    built: HashMap<Owner, Mounts>,
    /// The names that are taken in this limiter.
    names: HashMap<String, Claim>,
}

/// By route, and then by method.
type Mounts = HashMap<Box<str>, Vec<(&'static str, BuildResult)>>;

/// The policies of one handler on one route and method, or the reason why there are none.
pub(super) type BuildResult = Result<Arc<[Arc<Policy>]>, Arc<Misuse>>;

impl Registry {
    /// The policies for a request of this method and on this route. They are built for the first request.
    pub(super) fn policies(
        &self,
        limiter: &Limiter,
        site: &dyn Site,
        method: &Method,
        route: &str,
    ) -> BuildResult {
        let (owner, method) = (site.owner(), site.family(method));
        let generation = limiter.generation();
        if let Some(built) = self.known.load().find(generation, owner, method, route) {
            return built.clone();
        }
        let building = self.building.lock();
        let _building = building.unwrap_or_else(PoisonError::into_inner);
        let mut known = Catalog::clone(&self.known.load());
        // Another thread may have been here in between.
        if let Some(built) = known.find(generation, owner, method, route) {
            return built.clone();
        }
        if known.generation != generation {
            known = Catalog {
                generation,
                ..Catalog::default()
            };
        }
        let built = match Build::new(limiter, &known.names, site, method, route).policies() {
            Ok((policies, claims)) => {
                known.names.extend(claims);
                Ok(policies)
            }
            // Logged once, where it stands for all requests that are to come.
            Err(what) => Err(Arc::new(Misuse::new(site, route, what).log(site))),
        };
        let mounts = known.built.entry(owner).or_default();
        let methods = mounts.entry(route.into()).or_default();
        methods.push((method, built.clone()));
        self.known.store(Arc::new(known));
        built
    }
}

impl Catalog {
    fn find(
        &self,
        generation: u64,
        owner: Owner,
        method: &str,
        route: &str,
    ) -> Option<&BuildResult> {
        if self.generation != generation {
            return None;
        }
        let mut methods = self.built.get(&owner)?.get(route)?.iter();
        methods.find_map(|(known, built)| (*known == method).then_some(built))
    }
}
