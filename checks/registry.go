package checks

import "slices"

// All returns every check, sorted by id. A new check adds its line here.
func All() []Check {
	all := []Check{
		affinityConflicts(),
		blackholedRoutes(),
		blockLayout(),
		blocklessNodes(),
		borrowedIPs(),
		clusterAccess(),
		datastoreLocked(),
		duplicateIPs(),
		handleLeaks(),
		ipamConfig(),
		ipamData(),
		ipamGC(),
		leakedIPs(),
		misbookedIPs(),
		multiBlockNodes(),
		nodeBlockLimit(),
		nodeCapacity(),
		orphanAffinities(),
		poolConfig(),
		poolUtilisation(),
		routeDisagreement(),
		stuckPods(),
		tunnelIPs(),
		unallocatedPodIPs(),
	}
	slices.SortFunc(all, func(a, b Check) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// Find returns the check with this id.
func Find(id string) (Check, bool) {
	for _, c := range All() {
		if c.ID == id {
			return c, true
		}
	}
	return Check{}, false
}
