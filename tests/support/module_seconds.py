"""What slow test modules cost, for the order of a parallel run: the slowest start first.

Seconds of the last measured run; the end of each run prints them. Only the order depends on them, and only roughly.
"""

MODULE_SECONDS: dict[str, float] = {
    "tests/faults/test_soak.py": 600,
    "tests/faults/test_functions_soak.py": 590,
    "tests/integration/units/test_quiet_and_scale.py": 300,
    "tests/integration/invocations/test_invocations_chaos.py": 254,
    "tests/integration/units/test_units_crashes.py": 207,
    "tests/integration/stacks/test_restore.py": 160,
    "tests/integration/stacks/test_stacks_crashes.py": 160,
    "tests/integration/infra/test_infra.py": 117,
    "tests/integration/storages/test_storage_programs.py": 96,
    "tests/integration/infra/test_infra_rights.py": 93,
    "tests/integration/infra/test_infra_production.py": 90,
    "tests/integration/stacks/test_stack_runner.py": 89,
    "tests/integration/reconciler/test_machinery.py": 85,
    "tests/integration/api/test_api_modes.py": 84,
    "tests/integration/api/test_api_schema.py": 75,
    "tests/integration/stacks/test_dynamic_provider.py": 65,
    "tests/integration/cluster/test_cluster_lifecycle.py": 61,
    "tests/integration/api/test_api_outages.py": 57,
    "tests/integration/infra/test_kubernetes_plugin.py": 57,
    "tests/integration/infra/test_kubernetes_plugin_refusals.py": 55,
    "tests/integration/functions/test_functions.py": 50,
    "tests/integration/stacks/test_dynamic_provider_failures.py": 50,
    "tests/integration/stacks/test_stack_runner_crashes.py": 45,
    "tests/integration/api/test_api_callers.py": 43,
    "tests/integration/stacks/test_stacks_by_hand.py": 42,
    "tests/integration/reconciler/test_outages.py": 41,
    "tests/integration/storages/test_storages.py": 41,
    "tests/integration/functions/test_scaling.py": 40,
    "tests/integration/stacks/test_stacks.py": 38,
    "tests/integration/cluster/test_tools.py": 36,
    "tests/integration/functions/test_serverless_worker.py": 35,
    "tests/integration/units/test_proxy.py": 35,
}
