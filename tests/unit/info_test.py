#!/usr/bin/env python3
"""swimlane-info runs anywhere, tells what a made-up machine has, and where each value comes from."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOL = sys.argv.pop(1)
HIDE_RDMA = os.environ.get("HIDE_RDMA")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("SWIMLANE_", "NCCL_"))}


def run(*words, **variables):
    return subprocess.run([TOOL, *words], env={**CLEAN, **variables}, capture_output=True,
                          text=True, timeout=60)


def info(*words, **variables):
    return json.loads(run("--json", *words, **variables).stdout)


def make_machine(root, nnics, name="mlx5_%d"):
    def write(path, text):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    def pci(place):
        write(f"/sys/devices/{place}/numa_node", "0")
        os.makedirs(root + "/sys/bus/pci/devices", exist_ok=True)
        os.symlink(f"../../../devices/{place}",
                   root + "/sys/bus/pci/devices/" + place.rsplit("/", 1)[1])

    pci("pci0000:16/0000:16:01.0/0000:1a:00.0")
    for i in range(nnics):
        bridge = "pci0000:16/0000:16:01.0" if i == 1 else "pci0000:46/0000:46:01.0"
        place = f"{bridge}/0000:{i:02x}:00.1"
        pci(place)
        nic = "/sys/class/infiniband/" + name % i
        write(nic + "/ports/1/state", "4: ACTIVE")
        write(nic + "/ports/1/rate", "400 Gb/sec (4X NDR)")
        write(nic + "/ports/1/link_layer", "Ethernet")
        write(nic + "/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000")
        write(nic + "/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:c0a8:0102")
        write(nic + "/ports/1/gid_attrs/types/3", "RoCE v2")
        write(nic + "/ports/2/state", "1: DOWN")
        os.symlink(f"../../../devices/{place}", root + nic + "/device")
        write(f"/sys/devices/{place}/net/eth{i}/type", "1")
        write(f"/sys/class/net/eth{i}/mtu", "9000")
    write("/sys/module/nvidia_peermem/refcnt", "0")
    write("/proc/driver/nvidia/version", "NVRM version: made up 580.1")


class Info(unittest.TestCase):
    def test_D_C4_shows_no_secret(self):
        for words in ((), ("--json",)):
            got = run(*words, SWIMLANE_JOB_SECRET="open sesame")
            self.assertNotIn("sesame", got.stdout + got.stderr)
            self.assertIn("not shown", got.stdout)

    def test_runs_here_and_is_quiet_on_stderr(self):
        got = run()
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for words in ("host:", "transports:", "variables:", "choice:"):
            self.assertIn("\n" + words, got.stdout)

    def test_json_has_the_same_sections(self):
        got = info()
        for key in ("host", "gpus", "nics", "transports", "choice", "variables"):
            self.assertIn(key, got)

    def test_json_is_what_programs_may_rely_on(self):
        got = info("--nodes", "2", "--ranks-per-node", "2")
        host = {"kernel": str, "rdma_core": str, "modules": dict}
        for key, kind in host.items():
            self.assertIsInstance(got["host"][key], kind, key)
        for value in got["host"]["modules"].values():
            self.assertIsInstance(value, bool)
        self.assertIsInstance(got["gpus"], list)
        self.assertIsInstance(got["nics"], list)
        self.assertEqual(got["nics_found"] >= len(got["nics"]), True)
        self.assertEqual(set(got["transports"]), {"peer", "devx", "verbs", "proxy", "soft", "tcp"})
        for name, t in got["transports"].items():
            self.assertIsInstance(t["allowed"], bool, name)
            self.assertIsInstance(t.get("works_here", True), bool, name)
            self.assertIsInstance(t["needs"], str, name)
        self.assertEqual(set(got["choice"]["peers_of_rank_0"]), {"rank_1", "rank_2", "rank_3"})
        for name, v in got["variables"].items():
            self.assertRegex(name, "^(SWIMLANE|NCCL|SIMT|CUDA)_|^NVCC")
            self.assertIn("source", v, name)
            self.assertIn("value", v, name)

    @unittest.skipUnless(HIDE_RDMA, "nothing that hides rdma-core is preloaded under a sanitizer")
    def test_machine_without_rdma_core(self):
        got = run(LD_PRELOAD=HIDE_RDMA)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for words in ("libibverbs.so.1", "libibverbs1", "variables:"):
            self.assertIn(words, got.stdout)
        got = info("--nodes", "2", LD_PRELOAD=HIDE_RDMA)
        for name in ("devx", "verbs", "proxy"):
            self.assertFalse(got["transports"][name]["works_here"], name)
        self.assertIn("libibverbs.so.1", got["transports"]["proxy"]["why_not"])
        self.assertTrue(got["transports"]["tcp"]["works_here"])
        self.assertIn("libibverbs.so.1", got["host"]["rdma_core"])

    def test_every_transport_works_or_says_why_not(self):
        for name, t in info()["transports"].items():
            self.assertTrue(t["needs"], name)
            if name != "peer":
                self.assertTrue(t["works_here"] or t["why_not"].startswith(name + ": "), name)

    def test_made_up_machine(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 3)
            got = info("--root", root, "--gpu", "0000:1a:00.0")
        self.assertTrue(got["host"]["modules"]["nvidia_peermem"])
        self.assertFalse(got["host"]["modules"]["mlx5_core"])
        self.assertIn("580.1", got["host"]["nvidia_driver"])
        self.assertEqual([n["nic"] for n in got["nics"]], ["mlx5_0", "mlx5_1", "mlx5_2"])
        near = [n["from_gpus"]["0000:1a:00.0"] for n in got["nics"]]
        self.assertEqual(near[0], "one NUMA node")
        self.assertTrue(near[1].startswith("one PCIe switch"), near[1])
        port = got["nics"][0]["ports"][0]
        self.assertEqual((port["state"], port["rate"]), ("4: ACTIVE", "400 Gb/sec (4X NDR)"))
        self.assertEqual(port["gids"], ["3: 0000:0000:0000:0000:0000:ffff:c0a8:0102, RoCE v2"])
        self.assertEqual(got["nics"][0]["ports"][1]["rate"], "unknown")
        self.assertEqual(got["nics"][0]["interfaces"], ["eth0, MTU 9000"])

    def test_f48_hosts_with_many_nics(self):
        for n in (1, 8, 32, 33, 64, 65):
            with tempfile.TemporaryDirectory() as root:
                make_machine(root, n, "x" * 61 + "%02d")  # 63 characters
                got = info("--root", root)
            self.assertEqual(got["nics_found"], n)
            self.assertEqual(len(got["nics"]), min(n, 64))
            self.assertEqual("nics_cut" in got, n > 64)
            self.assertEqual(len(got["nics"][-1]["nic"]), 63)

    def test_values_and_their_sources(self):
        got = info(SWIMLANE_IB_SL="3", NCCL_IB_HCA="mlx5_7", SWIMLANE_IB_TC="999",
                   NCCL_EP_TIMEOUT_MS="")["variables"]
        self.assertEqual((got["SWIMLANE_IB_SL"]["value"], got["SWIMLANE_IB_SL"]["source"]),
                         ("3", "SWIMLANE_IB_SL"))
        self.assertEqual((got["SWIMLANE_IB_HCA"]["value"], got["SWIMLANE_IB_HCA"]["source"]),
                         ("mlx5_7", "NCCL_IB_HCA"))
        self.assertEqual(got["SWIMLANE_IB_TC"]["source"], "built-in")
        self.assertEqual(got["SWIMLANE_IB_TC"]["malformed"], "SWIMLANE_IB_TC 999")
        self.assertEqual(got["NCCL_EP_TIMEOUT_MS"]["source"], "built-in")

    def test_own_variable_wins_over_nccls(self):
        got = info(SWIMLANE_IB_HCA="mlx5_1", NCCL_IB_HCA="mlx5_7")["variables"]
        self.assertEqual(got["SWIMLANE_IB_HCA"]["source"], "SWIMLANE_IB_HCA")

    def test_malformed_value_is_named_once(self):
        got = run(SWIMLANE_TRANSPORT="peer,pigeon")
        self.assertEqual(got.returncode, 0)
        self.assertEqual(got.stderr.count("pigeon"), 1)

    def test_json_survives_bytes_that_are_no_text(self):
        got = info(SWIMLANE_IB_HCA=os.fsdecode(b"mlx5_\xff\"\x01"))["variables"]
        self.assertEqual(got["SWIMLANE_IB_HCA"]["value"], "mlx5_\ufffd\"\x01")

    def test_choice_follows_layout_and_list(self):
        layout = ("--nodes", "2", "--ranks-per-node", "2")
        for words, peers in ((None, ["peer", "soft", "soft"]), ("soft", ["soft"] * 3),
                             ("PEER", ["peer", "none", "none"]),
                             ("tcp,soft", ["soft"] * 3)):
            variables = {"SWIMLANE_TRANSPORT": words} if words else {}
            got = info(*layout, **variables)
            if got["host"]["ranks"] != "emulated" and words is None:
                continue  # as the machine is
            got = list(got["choice"]["peers_of_rank_0"].values())
            self.assertEqual([p.split(":")[0] for p in got], peers, words)

    def test_wrong_options_are_refused(self):
        for words in (("--what",), ("--nodes",), ("--nodes", "0"), ("--nodes", "x"), ("--root",),
                      ("--root", "/nowhere"), ("--root", TOOL), ("--gpu",), ("--gpu", "0"),
                      ("--gpu", "0000:18:00"), ("--gpu", "0000:18:00.0/..")):
            got = run(*words)
            self.assertEqual((got.returncode, got.stdout), (2, ""), words)
            self.assertIn(words[0], got.stderr)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
