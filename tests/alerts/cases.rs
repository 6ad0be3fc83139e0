//! What the alerts of helm/oncebox/files/alerts.yaml do with series: each case is run by Prometheus' own tool.

/// What an alert does with series of the workflow `orders`, a value a minute: whether it fires after so many minutes.
pub struct Case {
    pub alert: &'static str,
    /// Name and labels, to which the workflow is added where they are not closed, and values as promtool reads them: `1x9` is ten times
    /// 1, `_x9` nine times nothing.
    pub series: &'static [(&'static str, &'static str)],
    /// The namespace and the workflow that it names.
    pub about: &'static str,
    /// After so many minutes, or not.
    pub fires: &'static [(u32, bool)],
}

const ORDERS: &str = r#"{workflow="orders"}"#;

pub const CASES: [Case; 21] = [
    // The last process of all goes, and one comes back.
    Case {
        alert: "OnceboxDown",
        series: &[(r#"oncebox_build_info{version="1"}"#, "1x9 stale _x20 1x9")],
        about: "{}",
        fires: &[(9, false), (14, false), (16, true), (30, true), (32, false)],
    },
    // One of two releases goes: it is named, and for a day.
    Case {
        alert: "OnceboxDown",
        series: &[
            (r#"oncebox_build_info{namespace="sales"}"#, "1x9 stale"),
            (r#"oncebox_build_info{namespace="stock"}"#, "1x1600"),
        ],
        about: r#"{namespace="sales"}"#,
        fires: &[(9, false), (16, true), (1_400, true), (1_470, false)],
    },
    // Two processes of three go, and one of those comes back with another version.
    Case {
        alert: "OnceboxDown",
        series: &[
            (r#"oncebox_build_info{namespace="sales",pod="a"}"#, "1x40"),
            (r#"oncebox_build_info{namespace="sales",pod="b"}"#, "1x9 stale"),
            (r#"oncebox_build_info{namespace="sales",pod="c"}"#, "1x9 stale"),
            (r#"oncebox_build_info{namespace="sales",pod="d",version="2"}"#, "_x20 1x20"),
        ],
        about: r#"{namespace="sales"}"#,
        fires: &[(20, false), (40, false)],
    },
    // Postgres goes for ten minutes: what is read from it is absent.
    Case {
        alert: "OnceboxBlind",
        series: &[
            (r#"oncebox_build_info{pod="a"}"#, "1x40"),
            ("oncebox_workflow_info{", "1x40"),
            ("oncebox_delivery_lag_seconds{", "0x9 stale _x9 0x20"),
        ],
        about: ORDERS,
        fires: &[(9, false), (14, false), (16, true), (19, true), (22, false)],
    },
    // Of two processes one cannot read it: what the other says holds for both.
    Case {
        alert: "OnceboxBlind",
        series: &[
            (r#"oncebox_workflow_info{pod="a","#, "1x40"),
            (r#"oncebox_workflow_info{pod="b","#, "1x40"),
            (r#"oncebox_delivery_lag_seconds{pod="a","#, "0x40"),
        ],
        about: ORDERS,
        fires: &[(20, false), (40, false)],
    },
    // Processes that start while it is away have no workflow yet.
    Case {
        alert: "OnceboxBlind",
        series: &[
            (r#"oncebox_build_info{namespace="sales"}"#, "1x40"),
            (r#"oncebox_workflow_info{namespace="sales","#, "_x20 1x20"),
            (r#"oncebox_delivery_lag_seconds{namespace="sales","#, "_x20 1x20"),
        ],
        about: r#"{namespace="sales"}"#,
        fires: &[(4, false), (6, true), (19, true), (22, false)],
    },
    // Half-open while the one request tries, which hangs; open in between.
    Case {
        alert: "OnceboxCircuitOpen",
        series: &[("oncebox_circuit_state{", "0x4 2 1 1 2 1 1 2 1x20 0x9")],
        about: ORDERS,
        fires: &[(4, false), (9, false), (12, true), (30, true), (35, false)],
    },
    Case {
        alert: "OnceboxCircuitOpen",
        series: &[("oncebox_circuit_state{", "2 2 2 0 2 2 2 0 2 2 2 0 2 2 2 0 2 2 2 0")],
        about: ORDERS,
        fires: &[(6, false), (19, false)],
    },
    // The process that counted is gone, and the events are held until somebody says a word.
    Case {
        alert: "OnceboxInDoubt",
        series: &[
            ("oncebox_events{state=\"pending\",", "0x5 2x1999 0x20"),
            ("oncebox_in_doubt_total{instance=\"one\",", "0x5 2x600 stale"),
            ("oncebox_in_doubt_total{instance=\"other\",", "_x600 0x1500"),
        ],
        about: ORDERS,
        fires: &[(10, false), (30, true), (120, true), (1_500, true), (2_004, true), (2_010, false)],
    },
    // What waits for one before it is nobody's to say a word on.
    Case {
        alert: "OnceboxInDoubt",
        series: &[("oncebox_events{state=\"pending\",", "5x60"), ("oncebox_in_doubt_total{", "0x60")],
        about: ORDERS,
        fires: &[(60, false)],
    },
    // A topic that is kept for an hour: nothing to read, then some records that are read at once.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "3600x30 3599x30"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0x30 5x30"),
            ("oncebox_delivery_lag_seconds{", "0x30 1x30"),
        ],
        about: ORDERS,
        fires: &[(30, false), (60, false)],
    },
    // The same topic, and nothing is read any more.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "3600-60x60"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0+9x60"),
            ("oncebox_delivery_lag_seconds{", "0+60x60"),
        ],
        about: ORDERS,
        fires: &[(20, false), (40, true), (60, true)],
    },
    // A week of records, all but the last hours of it waiting; and read in time.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "20000x30 604800x9"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "0x39"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"1\",", "900000x30 0x9"),
            ("oncebox_delivery_lag_seconds{", "584800x30 0x9"),
        ],
        about: ORDERS,
        fires: &[(4, false), (10, true), (35, false)],
    },
    // Late, and Kafka keeps the rest for days.
    Case {
        alert: "OnceboxRetentionNear",
        series: &[
            ("oncebox_kafka_retention_headroom_seconds{", "90000x30"),
            ("oncebox_kafka_lag_records{topic=\"t\",partition=\"0\",", "900000x30"),
            ("oncebox_delivery_lag_seconds{", "514800x30"),
        ],
        about: ORDERS,
        fires: &[(30, false)],
    },
    // All that is old waits for its time.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"active\",", "3x90"),
            ("oncebox_events{state=\"retryable\",", "0x90"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        about: ORDERS,
        fires: &[(90, false)],
    },
    // One of the others is tried again and again.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"retryable\",", "0 0 0 0 1 0 0 0 0 0 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 1 0 0"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        about: ORDERS,
        fires: &[(15, false), (25, true)],
    },
    // One of the others is due, and nobody sends it.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "0+60x90"),
            ("oncebox_events{state=\"scheduled\",", "9x90"),
            ("oncebox_events{state=\"retryable\",", "0x90"),
            ("oncebox_events{state=\"pending\",", "0x90"),
        ],
        about: ORDERS,
        fires: &[(15, false), (25, true)],
    },
    // What another release excuses in another namespace, with a workflow of the same name.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            (r#"oncebox_undelivered_age_seconds{namespace="sales","#, "0+60x90"),
            (r#"oncebox_delivery_lag_seconds{namespace="sales","#, "2x90"),
            (r#"oncebox_undelivered_age_seconds{namespace="stock","#, "0+60x90"),
            (r#"oncebox_delivery_lag_seconds{namespace="stock","#, "2x90"),
            (r#"oncebox_events{namespace="stock",state="scheduled","#, "9x90"),
            (r#"oncebox_events{namespace="stock",state="pending","#, "0x90"),
        ],
        about: r#"{namespace="sales",workflow="orders"}"#,
        fires: &[(15, false), (25, true)],
    },
    // A release that runs says nothing of one that cannot tell.
    Case {
        alert: "OnceboxBlind",
        series: &[
            (r#"oncebox_workflow_info{namespace="sales","#, "1x40"),
            (r#"oncebox_workflow_info{namespace="stock","#, "1x40"),
            (r#"oncebox_delivery_lag_seconds{namespace="stock","#, "0x40"),
        ],
        about: r#"{namespace="sales",workflow="orders"}"#,
        fires: &[(4, false), (6, true)],
    },
    // None is scheduled.
    Case {
        alert: "OnceboxUndelivered",
        series: &[
            ("oncebox_undelivered_age_seconds{", "0+60x90"),
            ("oncebox_delivery_lag_seconds{", "2x90"),
            ("oncebox_events{state=\"scheduled\",", "0x90"),
            ("oncebox_events{state=\"retryable\",", "1x90"),
        ],
        about: ORDERS,
        fires: &[(15, false), (25, true)],
    },
    // With more than was counted so far there are no counts.
    Case {
        alert: "OnceboxUndelivered",
        series: &[("oncebox_undelivered_age_seconds{", "0+60x90"), ("oncebox_delivery_lag_seconds{", "2x90")],
        about: ORDERS,
        fires: &[(25, true)],
    },
];

/// With `metrics.rules.routeLabels: [team]` of the chart.
pub const ROUTED: [Case; 5] = [
    Case {
        alert: "OnceboxLate",
        series: &[
            (r#"oncebox_workflow_info{pod="a",team="erp","#, "1x40"),
            (r#"oncebox_workflow_info{pod="b",team="erp","#, "1x40"),
            (r#"oncebox_workflow_info{team="stock",workflow="returns"}"#, "1x40"),
            ("oncebox_delivery_lag_seconds{", "0x9 400x30"),
            (r#"oncebox_delivery_lag_seconds{workflow="returns"}"#, "0x40"),
        ],
        about: r#"{team="erp",workflow="orders"}"#,
        fires: &[(9, false), (16, true)],
    },
    // While pods are replaced some tell another team: it is one alert all the same, and its time goes on.
    Case {
        alert: "OnceboxLate",
        series: &[
            (r#"oncebox_workflow_info{pod="a",team="erp","#, "1x40"),
            (r#"oncebox_workflow_info{pod="b",team="stock","#, "_x10 1x30"),
            ("oncebox_delivery_lag_seconds{", "400x40"),
        ],
        about: r#"{team="erp",workflow="orders"}"#,
        fires: &[(9, true), (11, true), (30, true)],
    },
    // Nobody runs what was removed: it has no labels, and alerts.
    Case {
        alert: "OnceboxRemoved",
        series: &[
            (r#"oncebox_workflow_info{team="stock",workflow="returns"}"#, "1x40"),
            (r#"oncebox_workflow_state{state="removed","#, "1x40"),
        ],
        about: ORDERS,
        fires: &[(14, false), (16, true)],
    },
    // Without such a label.
    Case {
        alert: "OnceboxSuspended",
        series: &[("oncebox_workflow_info{", "1x40"), (r#"oncebox_workflow_state{state="suspended","#, "0x9 1x30")],
        about: ORDERS,
        fires: &[(9, false), (11, true)],
    },
    // More labels than the workflow's.
    Case {
        alert: "OnceboxDeadLetters",
        series: &[
            (r#"oncebox_workflow_info{namespace="sales",team="erp","#, "1x40"),
            (r#"oncebox_dead_lettered_total{namespace="sales",reason="rejected","#, "0x9 3x30"),
            (r#"oncebox_dead_lettered_total{namespace="sales",reason="expired","#, "0x40"),
        ],
        about: r#"{namespace="sales",team="erp",workflow="orders"}"#,
        fires: &[(9, false), (11, true)],
    },
];
