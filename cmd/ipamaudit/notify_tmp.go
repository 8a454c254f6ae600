package main

import (
	"context"

	"ipamaudit/audit/config"
)

func (d *diagnosis) notifiers(ctx context.Context, c *config.Config) {}
