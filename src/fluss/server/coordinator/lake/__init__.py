"""The lake as the coordinator sees it: lake tables that follow Fluss tables, who tiers what, how far it got."""
