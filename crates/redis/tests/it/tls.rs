//! The backend behind TLS.

use std::error::Error;

use crate::common::{Budget, HOUR, Patience, every_algorithm, refused};
use tollgate_core::Quota;
use tollgate_redis::{RedisBackend, RedisBackendBuilder};
use tollgate_testkit::Tls;

fn trusting(tls: &Tls) -> RedisBackendBuilder {
    RedisBackend::builder(&tls.url())
        .patient()
        .certificate_authority(tls.authority())
}

#[tokio::test]
async fn a_server_of_an_authority_of_ones_own_decides() {
    let tls = Tls::start();
    let backend = trusting(&tls).connect().await.unwrap();
    for (n, quota) in every_algorithm(3, HOUR).into_iter().enumerate() {
        let budget = Budget::of(&format!("tls-{n}"), quota);
        for _ in 0..3 {
            assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
        }
        assert!(!budget.take(&backend, 1).await.unwrap().is_admitted());
    }
}

#[tokio::test]
async fn the_nodes_of_a_cluster_are_spoken_to_by_tls_as_the_first_is() {
    let tls = Tls::start_cluster();
    let builder = RedisBackend::cluster([tls.url()]).patient();
    let backend = builder.certificate_authority(tls.authority());
    let backend = backend.connect().await.unwrap();
    let budget = Budget::of("tls-cluster", Quota::per_hour(1));

    assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
    assert!(!budget.take(&backend, 1).await.unwrap().is_admitted());

    // No connection in the clear has come.
    let clients = tls.server.command(&["CLIENT", "LIST"]);
    let ours: Vec<_> = (clients.lines())
        .filter(|client| client.contains("name=tollgate"))
        .collect();
    let plain = format!("laddr=127.0.0.1:{}", tls.server.port());
    assert!(!ours.is_empty() && !ours.iter().any(|client| client.contains(&plain)));
}

#[tokio::test]
async fn a_master_is_spoken_to_by_tls_as_its_sentinels_are() {
    let tls = Tls::start();
    let (_sentinel, url) = tls.sentinel("budgets");
    let builder = RedisBackend::sentinel("budgets", [url]).patient();
    let backend = builder.certificate_authority(tls.authority());
    let backend = backend.connect().await.unwrap();
    let budget = Budget::of("tls-sentinel", Quota::per_hour(1));

    assert!(budget.take(&backend, 1).await.unwrap().is_admitted());
    assert!(!budget.take(&backend, 1).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_one_and_takes_nobody_without() {
    let tls = Tls::start_mutual();
    let (certificate, key) = tls.client();
    let with_one = trusting(&tls).client_certificate(certificate, key);
    let debug = format!("{with_one:?}");
    assert!(!debug.contains("BEGIN"), "{debug}");

    let backend = with_one.connect().await.unwrap();
    let budget = Budget::of("mutual", Quota::per_hour(1));
    assert!(budget.take(&backend, 1).await.unwrap().is_admitted());

    let why = refused(trusting(&tls)).await;
    assert!(why.contains("set client_certificate"), "{why}");
    let other = Tls::start_mutual();
    let (certificate, key) = other.client();
    let why = refused(trusting(&tls).client_certificate(certificate, key)).await;
    assert!(why.contains("look at client_certificate"), "{why}");
}

#[tokio::test]
async fn who_cannot_be_trusted_is_not_and_the_error_says_why() {
    let (sound, other) = (Tls::start(), Tls::start());
    let (elsewhere, expired) = (Tls::start_for("elsewhere.example"), Tls::start_expired());
    let plain = sound.server.url().replace("redis://", "rediss://");
    let encrypted = sound.url().replace("rediss://", "redis://");
    let cases = [
        (
            RedisBackend::builder(&sound.url()).certificate_authority(other.authority()),
            "certificate_authority",
        ),
        (
            // No authority was set, and the operating system does not know this one.
            RedisBackend::builder(&sound.url()),
            "certificate_authority",
        ),
        (trusting(&elsewhere), "for another name"),
        (trusting(&expired), "has expired"),
        (RedisBackend::builder(&plain), "redis:// or rediss://"),
        (RedisBackend::builder(&encrypted), "(rediss://)"),
    ];
    for (builder, word) in cases {
        let why = refused(builder.patient()).await;
        assert!(why.contains(word), "{word}: {why}");
    }
}

#[tokio::test]
async fn a_mixed_up_port_has_its_row_in_the_table_of_errors() {
    let tls = Tls::start();
    let plain = tls.server.url().replace("redis://", "rediss://");
    let encrypted = tls.url().replace("rediss://", "redis://");
    let page = include_str!("../../../../docs/redis.md");
    for (url, mix_up) in [
        (plain, "`rediss://` to a plain port"),
        (encrypted, "`redis://` to a TLS port"),
    ] {
        let why = refused(RedisBackend::builder(&url)).await;
        let rows = page.lines().filter(|line| {
            let cause = line
                .strip_prefix("| ")
                .and_then(|line| line.split(" | ").next());
            cause.is_some_and(|cause| why.contains(cause))
        });
        let rows: Vec<_> = rows.collect();
        assert!(
            rows.iter().any(|row| row.contains(mix_up)),
            "{why}: {rows:#?}"
        );
    }
}

#[tokio::test]
async fn papers_that_are_none_and_papers_for_nobody_are_refused_by_name() {
    let nonsense = RedisBackend::builder("rediss://localhost/")
        .certificate_authority("-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----");
    let unused = RedisBackend::builder("redis://localhost/").certificate_authority("whatever");
    for (builder, word) in [(nonsense, "certificates"), (unused, "rediss://")] {
        let error = builder.start().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.source().is_none() && !format!("{error:?}").contains("s3cret"));
    }
}
